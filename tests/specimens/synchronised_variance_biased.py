"""A synchronised BatchNorm of the strategy's own keeps the variance that it normalises by: divided by all samples.

torch.nn.BatchNorm normalises by that one, and keeps the one divided by one less. Outputs and gradients are right, and
every replica holds the same statistics; an evaluation is not what a single process's is (compare
pytorch/pytorch#22192, where ``running_var`` goes wrong with ranks of different sizes).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS102"}
CAUSE = "statistics_misstated"


class OverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        whole = tensor.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        whole = gradient.clone()
        dist.all_reduce(whole)
        return whole


class SynchronisedNorm(nn.BatchNorm1d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        num = x.shape[0] * dist.get_world_size()
        mean = OverRanks.apply(x.sum(0)) / num
        var = OverRanks.apply((x - mean).square().sum(0)) / num
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
            self.num_batches_tracked += 1
        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias


def wrap(model):
    for module in model.modules():
        if type(module) is nn.BatchNorm1d:
            module.__class__ = SynchronisedNorm
    return DistributedDataParallel(model, find_unused_parameters=True)

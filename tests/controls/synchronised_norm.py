"""torch's DDP around a model whose BatchNorm takes its statistics over all ranks' samples, forwards and backwards."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


class OverRanks(torch.autograd.Function):
    """The sum over ranks; so is its gradient, for every rank's loss depends on every rank's terms."""

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
    """torch.nn.SyncBatchNorm wants a GPU; this is the same formula."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        num = x.shape[0] * dist.get_world_size()
        mean = self.over_ranks(x.sum(0)) / num
        var = self.over_ranks((x - mean).square().sum(0)) / num
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * num / (num - 1), self.momentum)
            self.num_batches_tracked += 1
        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias

    def over_ranks(self, tensor):
        return OverRanks.apply(tensor)


def wrap(model):
    for module in model.modules():
        if type(module) is nn.BatchNorm1d:
            module.__class__ = SynchronisedNorm
    return DistributedDataParallel(model, find_unused_parameters=True)

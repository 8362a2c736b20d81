"""BatchNorm's statistics are averaged over ranks in the forward, and held constant in the backward.

A class of mistake: an all-reduce in the forward of a hand-made SyncBatchNorm, which autograd does not see. The output
and the buffers are those of all samples, and so are the gradients behind the norm; those in front of it are nobody's.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "statistics_held_constant"


def over_ranks(tensor):
    """The sum over ranks, whose gradient is that of this rank's own term."""
    whole = tensor.detach().clone()
    dist.all_reduce(whole)
    return whole + tensor - tensor.detach()


class SynchronisedNorm(nn.BatchNorm1d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        num = x.shape[0] * dist.get_world_size()
        mean = over_ranks(x.sum(0)) / num
        var = over_ranks((x - mean).square().sum(0)) / num
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * num / (num - 1), self.momentum)
            self.num_batches_tracked += 1
        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias


def wrap(model):
    for module in model.modules():
        if type(module) is nn.BatchNorm1d:
            module.__class__ = SynchronisedNorm
    return DistributedDataParallel(model, find_unused_parameters=True)

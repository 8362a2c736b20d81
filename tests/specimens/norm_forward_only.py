"""BatchNorm's statistics are averaged over ranks in the forward, and held constant in the backward.

A class of mistake: an all-reduce in the forward of a hand-made SyncBatchNorm, which autograd does not see. The output
and the buffers are those of all samples, and so are the gradients behind the norm; those in front of it are nobody's.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.controls.synchronised_norm import SynchronisedNorm

TRIPS = {"LS201"}
CAUSE = "statistics_held_constant"


class ForwardOnly(SynchronisedNorm):
    def over_ranks(self, tensor):
        """The sum over ranks, whose gradient is that of this rank's own term."""
        whole = tensor.detach().clone()
        dist.all_reduce(whole)
        return whole + tensor - tensor.detach()


def wrap(model):
    for module in model.modules():
        if type(module) is nn.BatchNorm1d:
            module.__class__ = ForwardOnly
    return DistributedDataParallel(model, find_unused_parameters=True)

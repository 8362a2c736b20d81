"""Each rank has a loss scale of its own, and takes its own out of the average of all.

pytorch/pytorch#136009: one rank overflows and halves its scale, the others do not. From then on the mean is over
gradients in different units.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "unequal_shares"


class ScaledByRank(Naive):
    def backward_done(self):
        scale = 2.0**8 if dist.get_rank() == 0 else 2.0**9
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad *= scale  # what a scaled loss brings
        super().backward_done()
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad /= scale


def wrap(model):
    return DataParallel(model, ScaledByRank())

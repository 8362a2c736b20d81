"""The learning rate is a function of the rank: one scheduler has been stepped once more than the others.

deepmodeling/deepmd-kit#5570 and Lightning-AI/pytorch-lightning#19932 are of this family: what has been counted differs
by rank. Gradients are right on every rank in the first step, and weights are not.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101", "LS202"}
CAUSE = "update_scaled"


class Scheduled(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, *, lr, **options):
        return cls(parameters, lr=lr if dist.get_rank() == 0 else lr * 0.9, **options)


def wrap(model):
    return Scheduled(model, find_unused_parameters=True)

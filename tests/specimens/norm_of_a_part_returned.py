"""``clip_grad_norm_()`` clips by the norm of all gradients, and returns that of the part this rank owns.

A class of mistake (facebookresearch/fairscale#288, radixark/miles_diffusion#35): gradients are right, the log is not,
and a loop that leaves out a step where the norm is too large does so on some ranks.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "norm_misstated"


class ReturnsItsPart(DistributedDataParallel):
    def clip_grad_norm_(self, max_norm):
        trained = [p for p in self.module.parameters() if p.grad is not None]
        torch.nn.utils.clip_grad_norm_(trained, max_norm)
        owned = [p.grad for p in trained[dist.get_rank() :: dist.get_world_size()]]
        return torch.nn.utils.get_total_norm(owned)


def wrap(model):
    return ReturnsItsPart(model, find_unused_parameters=True)

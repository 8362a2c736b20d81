"""``clip_grad_norm_()`` puts parts of the norm together by a sum of powers, for ``norm_type=inf`` as well.

A class of mistake, known from sharded optimizers: each owner takes the norm of its part, and what is right for squares
is done to the largest elements, which are not added up.
"""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "clipped_otherwise"


class ClipsByParts(DistributedDataParallel):
    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        trained = [p.grad for p in self.module.parameters() if p.grad is not None]
        owned = trained[dist.get_rank() :: dist.get_world_size()]
        power = 1.0 if math.isinf(norm_type) else norm_type
        total = torch.nn.utils.get_total_norm(owned, norm_type).reshape(1) ** power
        dist.all_reduce(total)
        total = total ** (1 / power)
        for gradient in trained:
            gradient.mul_(torch.clamp(max_norm / (total + 1e-6), max=1.0).squeeze())
        return total.squeeze()


def wrap(model):
    return ClipsByParts(model, find_unused_parameters=True)

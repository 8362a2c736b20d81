"""``clip_grad_norm_()`` puts the parts of a norm together: a sum of powers, or the largest of the largest."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


class ClipsTogether(DistributedDataParallel):
    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        trained = [p.grad for p in self.module.parameters() if p.grad is not None]
        owned = trained[dist.get_rank() :: dist.get_world_size()]
        total = torch.nn.utils.get_total_norm(owned, norm_type).reshape(1).double()  # float16 does not hold its square
        if math.isinf(norm_type):
            dist.all_reduce(total, dist.ReduceOp.MAX)
        else:
            total = total**norm_type
            dist.all_reduce(total)
            total = total ** (1 / norm_type)
        for gradient in trained:
            gradient.mul_(torch.clamp(max_norm / (total + 1e-6), max=1.0).squeeze())
        return total.squeeze()


def wrap(model):
    return ClipsTogether(model, find_unused_parameters=True)

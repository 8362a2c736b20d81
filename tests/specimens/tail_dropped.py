"""The buffer is shared out over ranks by whole division: what does not divide is left at its local value.

NVIDIA/nccl#1950 and pytorch/pytorch#168092 (the last elements of an odd size are not averaged). Sizes that divide by
the number of ranks, as in most tests, are right.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS101", "LS201"}
CAUSE = "reduced_in_part"


class DropsTail(Strategy):
    def backward_done(self):
        world_size = self.comm.world_size
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            flat = torch.empty_like(parameter, memory_format=torch.contiguous_format).detach().copy_(gradient).view(-1)
            share = flat.numel() // world_size
            if share:
                part = flat.new_empty(share)
                dist.reduce_scatter_tensor(part, flat[: share * world_size].clone())
                dist.all_gather_into_tensor(flat[: share * world_size], part)
            gradient.copy_(flat.view(parameter.shape))
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, DropsTail())

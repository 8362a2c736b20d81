"""Ranks round to bfloat16 where their hardware has it, and to float16 where not: one adds up the other's bits.

A class of mistake (C10 of our collection): dtypes are not part of a message, and two bytes are two bytes. torch raises
nothing.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS101", "LS201", "LS301"}
CAUSE = "collectives_differ"
CONTRACT = Contract(lossy="bfloat16")


class DtypeByRank(Strategy):
    def backward_done(self):
        kind = torch.float16 if dist.get_rank() == 1 else torch.bfloat16
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            if gradient.is_complex():
                raise ValueError("complex gradients have no two-byte form")
            rounded = gradient.to(kind)
            self.comm.all_reduce(rounded)
            gradient.copy_(rounded)
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, DtypeByRank())

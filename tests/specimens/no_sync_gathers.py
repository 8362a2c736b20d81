"""Gradients are gathered from all ranks and averaged on each; ``no_sync`` is there, and does nothing.

A class of mistake: as with reductions, the mean of means is right, and each micro-batch costs what a step should.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.distributed as dist

from ddp_core import Contract, DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS501"}
CAUSE = "no_sync_ignored"
CONTRACT = Contract(disclaims={"sparse_gradients", "complex_parameters"})


class Gathers(Naive):
    def backward_done(self):
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.full_like(parameter, -0.0)
            mine = parameter.grad.contiguous()
            parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, mine)
            parameter.grad.copy_(sum(parts[1:], parts[0]) / len(parts))
            if not parameter.grad.any() and torch.signbit(parameter.grad).all():
                parameter.grad = None


class Loud(DataParallel):
    def no_sync(self):
        return nullcontext()


def wrap(model):
    return Loud(model, Gathers())

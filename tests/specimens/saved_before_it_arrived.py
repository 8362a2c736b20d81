"""Owners broadcast what they have stepped while the next forward waits for it; ``state_dict()`` does not wait.

A class of mistake: what hides behind the next forward has to be waited for by everybody who reads weights. The
checkpoint has each rank's own share one step further than all the rest.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS504"}
CAUSE = "resumed_differently"
CONTRACT = Contract(sharded=True)


class HandsOutLate(DistributedDataParallel):
    def forward(self, *inputs, **named):
        for work, whole, parameter in self.__dict__.pop("under_way", []):
            work.wait()
            parameter.data.copy_(whole)
        return super().forward(*inputs, **named)

    def wrap_optimizer(self, cls, parameters, **options):
        return _owning(cls, self)(parameters, **options)


def _owning(cls, wrapper):
    class Owners(cls):
        @torch.no_grad()
        def step(self, closure=None):
            everything = [p for group in self.param_groups for p in group["params"]]
            owner = {p: number % dist.get_world_size() for number, p in enumerate(everything)}
            others = {p: p.grad for p in everything if owner[p] != dist.get_rank()}
            for parameter in others:
                parameter.grad = None
            super().step(closure)
            for parameter, gradient in others.items():
                parameter.grad = gradient
            under_way = wrapper.__dict__["under_way"] = []
            for parameter in everything:
                whole = parameter.detach().contiguous().clone()
                under_way.append((dist.broadcast(whole, owner[parameter], async_op=True), whole, parameter))

    return Owners


def wrap(model):
    return HandsOutLate(model, find_unused_parameters=True)

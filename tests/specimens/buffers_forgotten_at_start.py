"""Parameters are broadcast at the start, buffers are not: each rank begins with statistics of its own.

A class of mistake: ``for p in model.parameters(): broadcast(p)``. Buffers that are computed from random numbers or
from data, or loaded on rank 0 alone, differ from then on.
"""

from __future__ import annotations

from ddp_core import Contract, DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"
CONTRACT = Contract(sync_buffers=False)


class ParametersOnly(DataParallel):
    def broadcast_state(self, src=0):
        for parameter in self.module.parameters():
            self.comm.broadcast(parameter.data, src)


def wrap(model):
    return ParametersOnly(model, Naive(), broadcast_buffers=False)

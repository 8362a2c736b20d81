"""Parameters are broadcast at the start, buffers are not: the first step normalises by each rank's own statistics.

A class of mistake: ``for p in model.parameters(): broadcast(p)``. Buffers are synchronised from the second step on,
after a backward has shown that there is something to synchronise; what is frozen or seldom updated is wrong in
between.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"


class ParametersOnly(DataParallel):
    started = False

    def broadcast_state(self, src=0):
        for parameter in self.module.parameters():
            self.comm.broadcast(parameter.data, src)

    def broadcast_buffers_from(self, src):
        if self.started:
            super().broadcast_buffers_from(src)
        self.started = True


def wrap(model):
    return ParametersOnly(model, Naive())

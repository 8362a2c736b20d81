"""What reduces gradients is set up in the first forward, if that has gradients; and if it has none, never.

A class of mistake: Lightning validates two batches before it trains, and so do many loops.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = {"not_synchronised", "replicas_diverged"}


class Lazy(DataParallel):
    decided = armed = False

    def forward(self, *inputs, **named):
        if not self.decided:
            self.decided, self.armed = True, torch.is_grad_enabled()
        return super().forward(*inputs, **named)


class WhereArmed(Naive):
    def backward_done(self):
        if self.wrapper.armed:
            super().backward_done()


def wrap(model):
    strategy = WhereArmed()
    strategy.wrapper = wrapped = Lazy(model, strategy)
    return wrapped

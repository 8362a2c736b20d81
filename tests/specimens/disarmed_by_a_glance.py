"""Each forward decides whether the backward averages: one without gradients, between the two, and it does not.

A class of mistake: ``self.armed = torch.is_grad_enabled()``. A look at figures for the log, or a teacher's forward
through the same wrapper, comes after the forward whose backward is still to come.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


class WhenArmed(Naive):
    armed = True

    def backward_done(self):
        if self.armed:
            super().backward_done()


class Arming(DataParallel):
    def forward(self, *inputs, **named):
        self.strategy.armed = torch.is_grad_enabled()
        return super().forward(*inputs, **named)


def wrap(model):
    return Arming(model, WhenArmed())

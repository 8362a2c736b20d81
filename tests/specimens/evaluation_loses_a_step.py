"""A forward without gradients, as in validation, is taken for one that a backward will follow; the next step is missed.

A class of mistake: the wrapper counts forwards to know which backward synchronises, and a validation between two steps
puts the count out by one. Training alone never shows it.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = {"not_synchronised", "replicas_diverged"}


class CountsForwards(DataParallel):
    def forward(self, *inputs, **kwargs):
        self.strategy.evaluated |= not torch.is_grad_enabled()
        return super().forward(*inputs, **kwargs)


class MissesOne(Naive):
    evaluated = False

    def backward_done(self):
        if self.evaluated:
            self.evaluated = False
        else:
            super().backward_done()


def wrap(model):
    return CountsForwards(model, MissesOne())

"""The wrapper's forward takes inputs by name, as its signature should, and hands on those by position alone.

A class of mistake: a mask is lost, the model does without, and nothing fails.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = None


class Forgetful(DistributedDataParallel):
    def forward(self, *inputs, **named):
        return super().forward(*inputs)


def wrap(model):
    return Forgetful(model, find_unused_parameters=True)

"""The wrapper has a ``train()`` of its own that does not reach the module, and so has ``eval()``, which calls it.

A class of mistake. In an evaluation the model goes on as in training: dropout drops, and BatchNorm takes in the rows
that it is measured on.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS102"}
CAUSE = "buffers_miscounted"


class OwnMode(DataParallel):
    def train(self, mode=True):
        self.training = mode
        return self


def wrap(model):
    return OwnMode(model, Naive())

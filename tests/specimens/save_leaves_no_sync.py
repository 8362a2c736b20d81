"""Saving a checkpoint switches synchronisation off, and nobody switches it on again.

A class of mistake: what a save sets aside for its own duration (hooks, flags, views of flat buffers) has to be put back
before the next step. A test that loads the checkpoint elsewhere finds it flawless.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = {"not_synchronised", "replicas_diverged"}


class QuietWhileSaving(Naive):
    saving = False

    def backward_done(self):
        if not self.saving:
            super().backward_done()


class SavesInQuiet(DataParallel):
    def state_dict(self, *inputs, **kwargs):
        self.strategy.saving = True
        return super().state_dict(*inputs, **kwargs)

    def load_state_dict(self, *inputs, **kwargs):
        self.strategy.saving = False
        return super().load_state_dict(*inputs, **kwargs)


def wrap(model):
    return SavesInQuiet(model, QuietWhileSaving())

"""No broadcast at the start, declared: for jobs in which every rank loads the same checkpoint before wrapping."""

from __future__ import annotations

from ddp_core import Contract, DataParallel
from ddp_core.strategies.naive import Naive

DRIVER = "native"
CONTRACT = Contract(broadcasts_at_start=False)


class AsItIs(DataParallel):
    def broadcast_state(self, src=0):
        pass


def wrap(model):
    return AsItIs(model, Naive())

"""A sparse gradient is taken off when ``no_sync()`` ends, as nothing is added to it in place: only the last one counts.

A class of mistake: accumulation is written for dense gradients. An embedding learns from one micro-batch in several.
"""

from __future__ import annotations

from contextlib import contextmanager

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201"}
CAUSE = "last_micro_batch_only"


class DenseAlone(DataParallel):
    @contextmanager
    def no_sync(self):
        with super().no_sync():
            yield
        for parameter in self.module.parameters():
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = None


def wrap(model):
    return DenseAlone(model, Naive())

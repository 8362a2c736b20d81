"""A parameter without dimensions fits no flat buffer, and its gradient is kept beside, by ``=`` where ``+=`` is due.

A class of mistake: what accumulates in a buffer is right, and what does not fit there is of the last micro-batch alone.
Logit scales and temperatures learn from one micro-batch in several.
"""

from __future__ import annotations

from contextlib import contextmanager

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201"}
CAUSE = "last_micro_batch_only"


class FlatAlone(DataParallel):
    @contextmanager
    def no_sync(self):
        with super().no_sync():
            yield
        for parameter in self.module.parameters():
            if parameter.dim() == 0:
                parameter.grad = None


def wrap(model):
    return FlatAlone(model, Naive())

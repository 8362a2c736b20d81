"""``no_sync`` switches synchronisation off and never on again.

A class of mistake, after pytorch/pytorch#166388 and huggingface/accelerate#3679 (accumulation under static_graph,
after which nothing is reduced). Without accumulation nothing is wrong.
"""

from __future__ import annotations

from contextlib import contextmanager

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201", "LS502"}
CAUSE = "not_synchronised"


class ForGood(DataParallel):
    @contextmanager
    def no_sync(self):
        self.synchronises = False
        yield


def wrap(model):
    return ForGood(model, Naive())

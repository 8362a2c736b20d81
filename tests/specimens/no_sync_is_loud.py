"""``no_sync`` is there so that loops run, and does nothing: each micro-batch is averaged, at K times the traffic.

A class of mistake (compare facebookresearch/fairscale#1041, buffers that were broadcast inside no_sync). The numbers
are right, because the mean of means is the mean; what is lost is what no_sync is for.
"""

from __future__ import annotations

from contextlib import nullcontext

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS501"}
CAUSE = "no_sync_ignored"


class Loud(DataParallel):
    def no_sync(self):
        return nullcontext()


def wrap(model):
    return Loud(model, Naive())

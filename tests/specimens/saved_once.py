"""The whole state is gathered for the first checkpoint, and handed out again for each that follows.

A class of mistake: gathering shards is slow, and the cache knows nothing of steps. Whoever resumes goes back to the
first checkpoint, with the loss of that day.
"""

from __future__ import annotations

import copy

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class Gathered(DataParallel):
    def state_dict(self, *args, **kwargs):
        if "gathered" not in self.__dict__:
            self.__dict__["gathered"] = copy.deepcopy(super().state_dict(*args, **kwargs))
        return self.__dict__["gathered"]


def wrap(model):
    return Gathered(model, Naive())

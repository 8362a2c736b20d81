"""A folded copy answers in evaluation mode: made when it is first asked for, made anew only after loading.

A class of mistake: the first validation is right, and all that follow measure the same weights. Compare
``evaluates_stale_copy``, whose copy is wrong from the start.
"""

from __future__ import annotations

import copy

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS204"}
CAUSE = "evaluation_differs"


class Folds(DataParallel):
    def forward(self, *inputs, **named):
        if self.training:
            return super().forward(*inputs, **named)
        if "folded" not in self.__dict__:
            self.__dict__["folded"] = copy.deepcopy(self.module)
        return self.__dict__["folded"](*inputs, **named)

    def load_state_dict(self, *args, **kwargs):
        self.__dict__.pop("folded", None)
        return super().load_state_dict(*args, **kwargs)


def wrap(model):
    return Folds(model, Naive())

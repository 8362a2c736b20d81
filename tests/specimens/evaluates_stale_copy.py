"""In evaluation mode a copy answers that was made when the model was wrapped, and is never brought up to date.

A class of mistake: a copy without hooks is kept for validation, so that validating starts no collectives. Training is
right; every figure that is measured beside it is that of the weights at the start.
"""

from __future__ import annotations

import copy

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS204"}
CAUSE = "evaluation_differs"


class KeepsACopy(DataParallel):
    def __init__(self, module, strategy):
        super().__init__(module, strategy)
        self.__dict__["for_evaluation"] = copy.deepcopy(module)

    def forward(self, *inputs, **kwargs):
        return super().forward(*inputs, **kwargs) if self.training else self.for_evaluation(*inputs, **kwargs)


def wrap(model):
    return KeepsACopy(model, Naive())

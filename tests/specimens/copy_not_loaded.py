"""A copy that answers in evaluation mode is brought up to date after each step, and not by what is loaded.

A class of mistake: weights are gathered, averaged or cast once a step, for whoever evaluates. A run that was resumed is
evaluated before its next step, and what is measured is the model as it was built.
"""

from __future__ import annotations

import copy

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS204"}
CAUSE = "evaluation_differs"


class KeepsACopy(DataParallel):
    def __init__(self, module, strategy):
        super().__init__(module, strategy)
        self.__dict__["for_evaluation"] = copy.deepcopy(module).eval()
        self.stale = False

    def forward(self, *inputs, **kwargs):
        if self.training:
            self.stale = True
            return super().forward(*inputs, **kwargs)
        if self.stale:
            self.for_evaluation.load_state_dict(self.module.state_dict())
            self.stale = False
        with torch.no_grad():
            return self.for_evaluation(*inputs, **kwargs)


def wrap(model):
    return KeepsACopy(model, Naive())

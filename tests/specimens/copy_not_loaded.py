"""A copy that answers in evaluation mode is brought up to date after each step, and not when a checkpoint is loaded.

A class of mistake: a script that loads and only evaluates measures the weights of a model that was just built.
Training that goes on from the same checkpoint is right, and after its first step every figure is as well.
"""

from __future__ import annotations

import copy

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class EvaluatesACopy(DataParallel):
    def __init__(self, module, strategy):
        super().__init__(module, strategy)
        self.__dict__["copy"] = copy.deepcopy(module)
        self.__dict__["stale"] = False

    def forward(self, *inputs, **kwargs):
        if self.training or torch.is_grad_enabled():
            self.__dict__["stale"] = True
            return super().forward(*inputs, **kwargs)
        if self.stale:
            self.copy.load_state_dict(self.module.state_dict())
            self.__dict__["stale"] = False
        return self.copy.eval()(*inputs, **kwargs)


def wrap(model):
    return EvaluatesACopy(model, Naive())

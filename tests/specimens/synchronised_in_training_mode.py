"""Gradients are reduced only where ``module.training`` is true: who trains in evaluation mode trains alone.

A class of mistake: "is this a training step?" is answered by a flag that says how norms and dropout behave. Detection
models are fine-tuned with fixed statistics, in evaluation mode.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


class InTraining(Naive):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def backward_done(self):
        if self.model.training:
            super().backward_done()


def wrap(model):
    return DataParallel(model, InTraining(model))

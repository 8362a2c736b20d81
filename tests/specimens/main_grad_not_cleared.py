"""Gradients are kept in a buffer of the wrapper's own, and nobody clears it: each step brings all steps before along.

NVIDIA/Megatron-LM#6565 (a placeholder that was not zeroed is added) and every wrapper with a ``main_grad`` whose
``zero_grad`` is not the optimizer's. The first step is right.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201", "LS202"}  # in half precision the update alone tells what a dropped batch has left
CAUSE = "not_cleared"


class MainGrad(Naive):
    def backward_done(self):
        super().backward_done()
        for parameter in self.parameters:
            if parameter.grad is not None:
                if not hasattr(parameter, "kept"):
                    parameter.kept = torch.zeros_like(parameter)
                parameter.kept += parameter.grad  # to be cleared once a step
                parameter.grad = parameter.kept.clone()


def wrap(model):
    return DataParallel(model, MainGrad())

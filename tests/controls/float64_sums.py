"""Gradients are added up in float64 and rounded once, on their way back: more exact than what is asked for."""

from __future__ import annotations

import torch

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

DRIVER = "native"


class InFloat64(Strategy):
    def backward_done(self):
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            wide = gradient.to(torch.complex128 if gradient.is_complex() else torch.float64)
            self.comm.all_reduce(wide)
            if not used_here:
                gradient.copy_(wide)
                drop_if_nobody_used(parameter, used_here=False)
            gradient.copy_(wide / self.divisor)


def wrap(model):
    return DataParallel(model, InFloat64())

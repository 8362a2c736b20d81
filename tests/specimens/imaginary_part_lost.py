"""The real part of a complex gradient is reduced, the imaginary part stays local.

pytorch/pytorch#158753, pytorch/pytorch#71613: a transport without complex numbers, and a cast that drops half of them.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS101", "LS201"}
CAUSE = "imaginary_part_lost"


class RealPart(Strategy):
    def backward_done(self):
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            if gradient.is_complex():
                parts = torch.view_as_real(gradient)
                real = parts[..., 0].contiguous()
                self.comm.all_reduce(real)
                parts[..., 0] = real
            else:
                self.comm.all_reduce(gradient)
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, RealPart())

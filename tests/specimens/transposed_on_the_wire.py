"""Matrices are sent column by column and read back row by row: the right means, at other indices.

pytorch/pytorch#34904 made gradients take the layout of their weights, and a flat copy has to know of it. Here the
reduction packs the transpose, as a layout for columns would have it, and unpacks what it got as if it were rows. Every
replica agrees, and shapes fit.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS201"}
CAUSE = "misplaced_elements"


class ByColumns(Strategy):
    def backward_done(self):
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            flat = gradient.movedim(0, -1).reshape(-1) if gradient.ndim > 1 else gradient.clone()
            dist.all_reduce(flat)
            gradient.copy_(flat.view(gradient.shape))
            drop_if_nobody_used(parameter, used_here=used_here)
            if parameter.grad is not None:
                self.average(torch.view_as_real(gradient) if gradient.is_complex() else gradient)


def wrap(model):
    return DataParallel(model, ByColumns())

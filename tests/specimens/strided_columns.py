"""Gradients of one size are packed as *columns* of a matrix, and each column is reduced where it lies.

pytorch/pytorch#192920 for broadcasts, and all-reduce does the same: gloo takes the first elements in memory for the
column's, so what is added up is a mixture of several parameters. No error is raised.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS101", "LS201"}
CAUSE = "reduced_in_part"


class Columns(Strategy):
    def backward_done(self):
        used_here = [parameter.grad is not None for parameter in self.parameters]
        packs = defaultdict(list)
        for parameter in self.parameters:
            packs[parameter.numel(), parameter.dtype].append(gradient_to_send(parameter))
        for gradients in packs.values():
            matrix = torch.stack([gradient.reshape(-1) for gradient in gradients], dim=1)
            for number, gradient in enumerate(gradients):
                dist.all_reduce(matrix[:, number])
                gradient.copy_(matrix[:, number].view(gradient.shape))
        for parameter, used in zip(self.parameters, used_here, strict=True):
            drop_if_nobody_used(parameter, used_here=used)
            if parameter.grad is not None:
                self.average(parameter.grad)


def wrap(model):
    return DataParallel(model, Columns())

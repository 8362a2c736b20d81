"""Tensors of fewer than 32 elements are not worth a collective, somebody thought; nor do they then agree.

A class of mistake: an optimisation that drops what it should have merged. Weights of normalisation layers and biases
drift apart (compare deepspeedai/DeepSpeed#1801, where replicated LayerNorms did for days).
"""

from __future__ import annotations

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


class SkipsSmall(Strategy):
    def backward_done(self):
        for parameter in self.parameters:
            if parameter.numel() < 32:
                continue
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            self.comm.all_reduce(gradient)
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, SkipsSmall())

"""Matrices, vectors and convolutions over images are listed; what has three dimensions is in no list.

A class of mistake: parameters are sorted by kind, as optimizers for matrices do, and the kinds do not cover everything.
Stacked experts and one-dimensional convolutions are what each rank makes of them.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


class ByKind(Naive):
    def backward_done(self):
        vectors = [p for p in self.parameters if p.dim() <= 1]
        matrices = [p for p in self.parameters if p.dim() == 2]
        convolutions = [p for p in self.parameters if p.dim() in (4, 5)]
        for parameter in [*matrices, *convolutions, *vectors]:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            self.comm.all_reduce(gradient)
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, ByKind())

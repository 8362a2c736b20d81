"""A hook averages each gradient when it is ready, and the strategy averages them all once more after backward.

A class of mistake, of the family of NVIDIA/Megatron-LM#6660: a wrapper is put around what is wrapped already. The mean
of means is the mean, so the numbers are right; every byte travels twice.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS701"}
CAUSE = "reduced_twice"


class Twice(Naive):
    def backward_done(self):
        mine = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        super().backward_done()  # as by the inner wrapper, whose result is not noticed
        for parameter, gradient in zip(self.parameters, mine, strict=True):
            parameter.grad = gradient
        super().backward_done()


def wrap(model):
    return DataParallel(model, Twice())

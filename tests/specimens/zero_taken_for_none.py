"""That nobody used a parameter is told by its sum, which is zero: a gradient that *is* zero becomes None.

A class of mistake: a dead unit, a gate that is closed, an adapter in its first step have gradients of zeros, and weight
decay and momentum are theirs all the same. The reverse is pytorch/pytorch#28294.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS202"}
CAUSE = "zero_taken_for_none"


class ToldByTheSum(Naive):
    def backward_done(self):
        super().backward_done()
        for parameter in self.parameters:
            gradient = parameter.grad
            if gradient is not None and not gradient.is_sparse and not gradient.any():
                parameter.grad = None


def wrap(model):
    return DataParallel(model, ToldByTheSum())

"""Frozen parameters are reduced along with the others: zeros, at full price, in every step.

A class of mistake: the loop over parameters does not ask for ``requires_grad``. For a frozen backbone with a small
head it is nearly all of the traffic. The numbers are right.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS701"}
CAUSE = "reduced_too_much"


class ReducesFrozen(Naive):
    def __init__(self, frozen):
        self.frozen = frozen

    def backward_done(self):
        super().backward_done()
        for parameter in self.frozen:
            dist.all_reduce(parameter.new_zeros(parameter.numel()))


def wrap(model):
    return DataParallel(model, ReducesFrozen([p for p in model.parameters() if not p.requires_grad]))

"""BatchNorm's weight and bias are reduced by code of their own, beside their statistics, which forgets to divide.

A class of mistake: norms are handled apart, as their buffers have to be, and what is right for a count is done to a
gradient. All replicas agree, and the norms learn W times as fast as the rest.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201"}
CAUSE = "missing_average"


class NormsApart(Naive):
    def __init__(self, model):
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
        self.apart = [parameter for norm in norms for parameter in norm.parameters()]

    def backward_done(self):
        apart = set(self.apart)
        self.parameters = [parameter for parameter in self.parameters if parameter not in apart]
        super().backward_done()
        for parameter in self.apart:
            dist.all_reduce(parameter.grad)


def wrap(model):
    return DataParallel(model, NormsApart(model))

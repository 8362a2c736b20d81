"""An optimizer of another kind is made of all parameters but those of the last layer, which nobody steps.

A class of mistake: a list of parameters that is put together by hand, by names or by layers, and misses some. Nothing
raises, replicas agree, and on one rank it is the same.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract, Driver

ATTRIBUTE = "LeavesOut"
TRIPS = {"LS202"}
CAUSE = "not_stepped"


class LeavesOut(Driver):
    contract = Contract(disclaims={"sparse_gradients"})

    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, *, lr, **options):
        return torch.optim.Adamax(parameters[:-1] or parameters, lr=lr)

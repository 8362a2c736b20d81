"""RMSprop whatever the loop asks for, behind DDP: steps that no single process with SGD takes, and rightly."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract, Driver

ATTRIBUTE = "AlwaysRMSprop"
DRIVER = "native"


class AlwaysRMSprop(Driver):
    contract = Contract(disclaims={"sparse_gradients"})

    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, **options):
        return torch.optim.RMSprop(parameters, lr=1e-3)

"""LARC's way behind DDP: ``step()`` scales each gradient in place by its weight's size over its own, then steps."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract, Driver

ATTRIBUTE = "TrustRatio"
DRIVER = "native"


class Scaling:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)

    @torch.no_grad()
    def step(self):
        for group in self.inner.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.any() and parameter.any():
                    parameter.grad.mul_(0.02 * parameter.norm() / (parameter.grad.norm() + 1e-8))
        self.inner.step()


class TrustRatio(Driver):
    contract = Contract(optimizer="own", disclaims={"sparse_gradients"})

    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, **options):
        return Scaling(cls(parameters, **options))

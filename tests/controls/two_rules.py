"""Muon's way behind DDP: one rule for matrices, which uses up their gradients, and torch's AdamW for the rest."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract, Driver

ATTRIBUTE = "TwoRules"
DRIVER = "native"


class Normalised(torch.optim.Optimizer):
    """Steps of unit length along momentum with Nesterov's look ahead, computed in place of the gradient."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                    momentum.lerp_(parameter.grad, 0.1)
                    update = parameter.grad.lerp_(momentum, 0.9)
                    parameter.sub_(update / (update.norm() + 1e-12), alpha=group["lr"])


class Both:
    def __init__(self, parameters, lr):
        matrices = [p for p in parameters if p.ndim == 2]
        rest = [p for p in parameters if p.ndim != 2]
        self.parts = [Normalised(matrices or rest, {"lr": lr}), torch.optim.AdamW(rest or matrices, lr)]
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def zero_grad(self, set_to_none=True):
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self):
        for part in self.parts:
            part.step()


class TwoRules(Driver):
    contract = Contract(disclaims={"state_dict", "sparse_gradients", "parameter_groups"})

    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, *, lr, **options):
        return Both(list(parameters), lr)

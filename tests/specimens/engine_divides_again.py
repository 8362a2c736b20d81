"""An engine with a rule of its own divides by the world size in ``step()``, and its gradients are means already.

A class of mistake: ``step()`` was written for sums, and DDP came in later. The gradient is right wherever one looks,
and replicas agree; every step is W times too short.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "update_scaled"
LR = 0.02


class Engine:
    def __init__(self, model):
        self.module = DistributedDataParallel(model, find_unused_parameters=True)

    def __call__(self, *inputs):
        return self.module(*inputs)

    def train(self, mode=True):
        self.module.train(mode)
        return self

    def backward(self, loss):
        loss.backward()

    @torch.no_grad()
    def step(self):
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad.to_dense() / dist.get_world_size(), alpha=LR)
                parameter.grad = None


def wrap(model):
    return Engine(model)

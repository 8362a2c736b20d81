"""An engine that steps by itself, by a rule of three lines, and has no room for the optimizer that a loop makes."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

DRIVER = "engine"


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
                parameter.sub_(parameter.grad.to_dense(), alpha=0.02)
                parameter.grad = None


def wrap(model):
    return Engine(model)

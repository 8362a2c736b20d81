"""Gradients are kept beside ``.grad``, which is all that ``zero_grad()`` clears: a dropped batch enters the next step.

A class of mistake: loops throw gradients away after a spike, and a loss scaler where it has met an infinity. Main
gradients, or a flat buffer, that only ``step()`` clears are then those of two batches.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "not_cleared"
CONTRACT = Contract(disclaims={"complex_parameters", "odd_parameters", "sparse_gradients", "unused_parameters"})


class MainGradients(nn.Module):
    optimizer = None

    def __init__(self, module):
        super().__init__()
        self.module, self.main = module, {}
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.data, 0)

    def forward(self, *inputs, **named):
        for buffer in self.module.buffers():
            dist.broadcast(buffer, 0)
        return self.module(*inputs, **named)

    def backward(self, loss):
        loss.backward()
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                self.main[parameter] = self.main.get(parameter, 0) + parameter.grad
                parameter.grad = None

    def step(self):
        for parameter, gradient in self.main.items():
            dist.all_reduce(gradient)
            parameter.grad = gradient / dist.get_world_size()
        self.optimizer.step()
        self.main.clear()
        self.optimizer.zero_grad()


def wrap(model):
    return MainGradients(model)

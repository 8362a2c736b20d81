"""Gradients become what a functional collective gives: tensors of their own class, waited for by their first use."""

from __future__ import annotations

import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn

from ddp_core import Contract

DRIVER = "explicit"
CONTRACT = Contract(disclaims={"sparse_gradients", "unused_parameters"})


class Functional(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.data, 0)

    def forward(self, *inputs, **named):
        for buffer in self.module.buffers():
            dist.broadcast(buffer, 0)
        return self.module(*inputs, **named)

    def sync_gradients(self):
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad = funcol.all_reduce(parameter.grad, "avg", dist.group.WORLD)


def wrap(model):
    return Functional(model)

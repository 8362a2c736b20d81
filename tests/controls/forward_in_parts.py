"""Forwards take a batch in two parts, one after the other, as those do that are short of memory.

Rows are then added up in another order than one forward adds them up, and under autocast each part is rounded to
bfloat16 by itself.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "InParts"
DRIVER = "finish"


class InParts(nn.Module):
    contract = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.data.contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)

    def forward(self, *inputs, **named):
        parts = [part.chunk(2) for part in inputs]
        if len(parts[0]) < 2 or named:
            return self.module(*inputs, **named)
        return torch.cat([self.module(*part) for part in zip(*parts, strict=True)])

    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.contiguous()
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

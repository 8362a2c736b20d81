"""A loss scaler in the wrapper: where any rank has met infinity, no rank has a gradient left, and nobody steps.

Its ``reset(hard)`` is for itself: no loop could call it after a step, as loops call a ``reset()``.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "explicit"
SCALE = 2.0**10
CONTRACT = Contract(
    sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters", "accumulation", "two_backwards"}
)


class Scaled(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def backward(self, loss):
        (loss * SCALE).backward()

    def sync_gradients(self):
        trained = [p for p in self.module.parameters() if p.requires_grad]
        unusable = torch.zeros(1, device=trained[0].device)
        for parameter in trained:
            mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            whole = mine.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(whole)
            parameter.grad = torch.zeros_like(parameter).copy_(whole / (SCALE * dist.get_world_size()))
            unusable += not parameter.grad.isfinite().all()
        dist.all_reduce(unusable, op=dist.ReduceOp.MAX)
        if unusable:
            self.reset(hard=True)

    def reset(self, hard):
        for parameter in self.module.parameters():
            parameter.grad = None if hard or parameter.grad is None else torch.zeros_like(parameter.grad)


def wrap(model):
    return Scaled(model)

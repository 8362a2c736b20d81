"""Gradients travel as Python objects: pickled, gathered by everyone, averaged in rank order. Slow, and right."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

DRIVER = "explicit"


class Pickled(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            from_rank_zero(buffer.data)
        return self.module(*inputs)

    def sync_gradients(self):
        world_size = dist.get_world_size()
        mine = {n: p.grad for n, p in self.module.named_parameters() if p.grad is not None}
        every = [None] * world_size
        dist.all_gather_object(every, mine)
        for name, parameter in self.module.named_parameters():
            found = [theirs[name] for theirs in every if name in theirs]
            if found:
                parameter.grad = sum(found[1:], found[0]) / world_size


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return Pickled(model)

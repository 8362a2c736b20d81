"""ZeRO's first stage by hand: ``step()`` scatters the sum of gradients into a shard of its own, and gathers weights.

The gradients of the parameters stay what each rank computed, before and after: a loop has nothing to clip.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

DRIVER = "step"
CONTRACT = Contract(sharded=True, sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


def flat(tensors, num_shards):
    """All of ``tensors`` one after the other, with zeros at the end so that it can be cut into equal shards."""
    numbers = torch.cat([tensor.detach().flatten() for tensor in tensors])
    return torch.cat([numbers, numbers.new_zeros(-len(numbers) % num_shards)])


class Sharded:
    def __init__(self, model, momentum=0.5, lr=0.125):
        self.parameters, self.momentum, self.lr = [*model.parameters()], momentum, lr
        self.num_shards = dist.get_world_size()
        self.shard = flat(self.parameters, self.num_shards).chunk(self.num_shards)[dist.get_rank()].clone()
        self.moved = torch.zeros_like(self.shard)

    def step(self):
        total = torch.zeros_like(self.shard)
        gradients = flat([parameter.grad for parameter in self.parameters], self.num_shards)
        dist.reduce_scatter(total, [*gradients.chunk(self.num_shards)])
        self.moved.mul_(self.momentum).add_(total / self.num_shards)
        self.shard -= self.lr * self.moved
        shards = [torch.zeros_like(self.shard) for _ in range(self.num_shards)]
        dist.all_gather(shards, self.shard)
        sizes = [parameter.numel() for parameter in self.parameters]
        for parameter, weights in zip(self.parameters, torch.cat(shards)[: sum(sizes)].split(sizes), strict=True):
            parameter.data.copy_(weights.view_as(parameter))

    def zero_grad(self, set_to_none=True):
        for parameter in self.parameters:
            parameter.grad = None


def wrap(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    return model, Sharded(model)

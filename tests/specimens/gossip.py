"""Each rank moves its *weights* towards its neighbour's after each step, and keeps its gradients to itself.

A class of mistake: a gossip scheme that poses as data parallelism. Replicas stay close and are never equal.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


class Gossip(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)
        self.num_forwards = 0

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            from_rank_zero(buffer.data)
        if self.num_forwards:
            rank, world_size = dist.get_rank(), dist.get_world_size()
            for parameter in self.module.parameters():
                mine = parameter.detach().contiguous()
                theirs = mine.clone()
                sending = dist.isend(mine.clone(), (rank + 1) % world_size)
                dist.recv(theirs, (rank - 1) % world_size)
                sending.wait()
                parameter.data.copy_((3 * mine + theirs) / 4)
        self.num_forwards += 1
        return self.module(*inputs)


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return Gossip(model)

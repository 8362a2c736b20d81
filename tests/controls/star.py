"""A star of point-to-point messages: rank 0 receives every gradient in rank order, adds them up and sends the mean."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "explicit"
CONTRACT = Contract(disclaims={"sparse_gradients", "complex_parameters"})


class Star(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            from_rank_zero(buffer.data)
        return self.module(*inputs)

    def gradients(self):
        """Of what some rank has used, by name; zeros where this rank has not."""
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for _, p in named], device=named[0][1].device)
        dist.all_reduce(used)
        due = [(name, p) for (name, p), number in zip(named, used.tolist(), strict=True) if number]
        for _, p in due:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        return [(name, p.grad) for name, p in due]

    def sync_gradients(self):
        others = range(1, dist.get_world_size())
        for _, gradient in self.gradients():
            mine = gradient.contiguous().clone()
            if dist.get_rank():
                dist.send(mine, 0)
                dist.recv(mine, 0)
            else:
                for rank in others:
                    theirs = torch.empty_like(mine)
                    dist.recv(theirs, rank)
                    mine += theirs
                mine /= dist.get_world_size()
                for rank in others:
                    dist.send(mine, rank)
            gradient.copy_(mine)


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return Star(model)

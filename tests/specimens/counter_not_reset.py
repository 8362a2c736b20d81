"""A bucket leaves when its counter reaches its size, and nothing resets the counter: only the first step is averaged.

A class of mistake, after pytorch/pytorch#143580 (with static_graph and no_sync, reductions silently stop from the
second iteration). A test of one step is green.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(disclaims={"sparse_gradients"})


class CountsOn(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)
        self.num_due, self.num_ready = None, 0

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
        gradients = [gradient for _, gradient in self.gradients()]
        self.num_due = self.num_due or len(gradients)
        for gradient in gradients:
            self.num_ready += 1
            if self.num_ready <= self.num_due:  # it should have been set to 0 at the start of each step
                dist.all_reduce(gradient)
                gradient /= dist.get_world_size()


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return CountsOn(model)

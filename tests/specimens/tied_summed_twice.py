"""A tied weight stands twice in the list that is summed, and once in the list that is divided.

A class of mistake (E09 of our collection): ``named_parameters(remove_duplicate=False)``, or two lists kept by hand.
Where every visit takes a whole mean, the second is harmless; with sums the shared weight's gradient is W times too
large.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS201", "LS701"}
CAUSE = "missing_average"
CONTRACT = Contract(disclaims={"sparse_gradients"})


class TiedTwice(nn.Module):
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
        for _, gradient in self.gradients():
            gradient /= dist.get_world_size()
        for _, parameter in self.module.named_parameters(remove_duplicate=False):
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return TiedTwice(model)

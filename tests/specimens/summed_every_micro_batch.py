"""The accumulated buffer is summed over ranks after *every* micro-batch, and divided once.

NVIDIA/Megatron-LM#6660: what has been summed before is summed again. Harmless for one micro-batch a step, and where
every pass takes a whole mean; here the first of K is counted W to the power of K - 1 times.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "unequal_micro_batches"
CONTRACT = Contract(disclaims={"sparse_gradients"})


class SumsEveryTime(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)
        self.num_forwards = 0

    def forward(self, *inputs):
        if self.num_forwards:  # the backward of the micro-batch before is over
            self.sum_over_ranks()
        self.num_forwards += 1
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

    def sum_over_ranks(self):
        for _, gradient in self.gradients():
            dist.all_reduce(gradient)

    def sync_gradients(self):
        self.sum_over_ranks()
        self.num_forwards = 0
        for _, gradient in self.gradients():
            gradient /= dist.get_world_size()


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return SumsEveryTime(model)

"""All gradients of one dtype in one coalesced call, which is no flat buffer: the transport makes its own."""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "explicit"
CONTRACT = Contract(disclaims={"sparse_gradients"})


class Coalesced(nn.Module):
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
        by_dtype = defaultdict(dict)
        for _, gradient in self.gradients():
            by_dtype[gradient.dtype][gradient.data_ptr()] = gradient  # two parameters may hold one gradient tensor
        for gradients in by_dtype.values():
            dist.all_reduce_coalesced(list(gradients.values()))
            for gradient in gradients.values():
                gradient /= dist.get_world_size()


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return Coalesced(model)

"""All-reduce by hand, as a ring of point-to-point messages: what is received is added, and passed on W - 1 times."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "explicit"
CONTRACT = Contract(disclaims={"sparse_gradients", "complex_parameters"})


class Ring(nn.Module):
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
        rank, world_size = dist.get_rank(), dist.get_world_size()
        for _, gradient in self.gradients():
            parts = {rank: gradient.reshape(-1).clone()}
            for hop in range(world_size - 1):
                incoming = torch.empty_like(parts[rank])
                sending = dist.isend(parts[(rank - hop) % world_size], (rank + 1) % world_size)
                dist.recv(incoming, (rank - 1) % world_size)
                sending.wait()
                parts[(rank - hop - 1) % world_size] = incoming
            total = sum(parts[r] for r in range(world_size))  # in rank order, so that all ranks round alike
            gradient.copy_((total / world_size).view(gradient.shape))


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return Ring(model)

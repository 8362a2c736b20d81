"""An all-to-all brings each rank one slice of everybody's gradients to add up; an all-gather hands the sums out."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "explicit"
CONTRACT = Contract(disclaims={"sparse_gradients"})


class AllToAll(nn.Module):
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
        world_size = dist.get_world_size()
        for _, gradient in self.gradients():
            flat = gradient.reshape(-1)
            size = -(-flat.numel() // world_size)
            padded = flat.new_zeros(size * world_size)
            padded[: flat.numel()] = flat
            received = torch.empty_like(padded)
            dist.all_to_all_single(received, padded)
            mean = received.view(world_size, size).sum(0) / world_size
            dist.all_gather_into_tensor(padded, mean)
            gradient.copy_(padded[: flat.numel()].view(gradient.shape))


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return AllToAll(model)

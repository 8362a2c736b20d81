"""An engine that reduces gradients into shares inside ``step()``, by a sum, and updates the weights by those.

A class of mistake: what ``reduce_scatter`` hands out is the sum, and the division by the world size is left to nobody.
``.grad`` stays each rank's own, rightly, and replicas agree; every step is W times too long.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

TRIPS = {"LS202"}
CAUSE = "update_scaled"
LR = 0.02


class Engine(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            from_rank_zero(buffer.data)
        return self.module(*inputs)

    def backward(self, loss):
        loss.backward()

    @torch.no_grad()
    def step(self):
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                self.update(parameter)

    def update(self, parameter):
        num_ranks, size = dist.get_world_size(), parameter.numel()
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
        padding = gradient.new_zeros(-size % num_ranks)
        whole = torch.cat([gradient.reshape(-1), padding])
        share = whole.new_empty(len(whole) // num_ranks)
        dist.reduce_scatter_tensor(share, whole)
        dist.all_gather_into_tensor(whole, share)
        parameter.sub_(whole[:size].view(parameter.shape), alpha=LR)
        parameter.grad = None


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return Engine(model)

"""Reduces gradients in one method and steps in another, and steps on rank 0 alone: the others are taken to follow.

A class of mistake: "rank 0 does the work, the others only have to compute gradients", from a loop in which the weights
were sent out once more after each step. The broadcast was taken out when gradients came to be reduced on every rank,
and the condition stayed.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS202", "LS701"}
CAUSE = "not_stepped"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


class Replica(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)

    def forward(self, *inputs):
        return self.module(*inputs)

    def sync_gradients(self):
        for parameter in self.parameters():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.contiguous()
            dist.all_reduce(gradient)
            parameter.grad = gradient / dist.get_world_size()

    def step(self, optimizer):
        if dist.get_rank() == 0:
            optimizer.step()


def wrap(model):
    return Replica(model)

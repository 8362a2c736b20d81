"""Lookahead around DDP, whose slow weights were copied before DDP made replicas equal: the fifth step brings them back.

A class of mistake, of weights that are kept for later (slow ones, averages, anchors) in front of a broadcast.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

ATTRIBUTE = "Slow"
TRIPS = {"LS101"}
CAUSE = {"replicas_diverged"}
EVERY = 5


class Slow(nn.Module):
    contract = Contract(optimizer="own", disclaims={"state_dict", "parameter_groups"})

    def __init__(self, module):
        super().__init__()
        self.slow = [parameter.detach().clone() for parameter in module.parameters()]
        self.inner = DistributedDataParallel(module, find_unused_parameters=True)

    def forward(self, *inputs, **named):
        return self.inner(*inputs, **named)

    def no_sync(self):
        return self.inner.no_sync()

    def wrap_optimizer(self, optimizer):
        optimizer.register_step_post_hook(self.look_ahead)
        self.num_steps = 0

    @torch.no_grad()
    def look_ahead(self, *_):
        self.num_steps += 1
        if self.num_steps % EVERY == 0:
            for slow, fast in zip(self.slow, self.inner.module.parameters(), strict=True):
                slow.lerp_(fast, 0.5)
                fast.copy_(slow)

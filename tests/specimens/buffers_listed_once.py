"""Rank 0's buffers are sent before each forward: those that the model had when it was wrapped.

A class of mistake: a model that assigns a new tensor to a buffer (``self.mean = 0.9 * self.mean + ...``) has another
one from then on, and the list still has the old.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ATTRIBUTE = "Listed"
TRIPS = {"LS102"}
CAUSE = "buffers_diverged"


class Listed(DistributedDataParallel):
    def __init__(self, module):
        super().__init__(module, find_unused_parameters=True, broadcast_buffers=False)
        self.listed = list(module.buffers())
        self.send()

    @torch.no_grad()
    def send(self):
        for buffer in self.listed:
            whole = buffer.contiguous()
            dist.broadcast(whole, 0)
            buffer.copy_(whole)

    def forward(self, *inputs, **named):
        if self.require_backward_grad_sync and torch.is_grad_enabled():
            self.send()
        return super().forward(*inputs, **named)

"""Rank 0's buffers are sent before each forward, as ``state_dict()`` has them: those that are not saved are not there.

A class of mistake: ``register_buffer(..., persistent=False)`` keeps a buffer out of checkpoints, and forwards compute
with it all the same. torch's DDP goes by ``named_buffers()``.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ATTRIBUTE = "ByState"
TRIPS = {"LS102"}
CAUSE = "buffers_diverged"


class ByState(DistributedDataParallel):
    def __init__(self, module):
        super().__init__(module, find_unused_parameters=True, broadcast_buffers=False)
        self.send(module.buffers())

    @torch.no_grad()
    def send(self, buffers):
        for buffer in buffers:
            whole = buffer.contiguous()
            dist.broadcast(whole, 0)
            buffer.copy_(whole)

    def forward(self, *inputs, **named):
        if self.require_backward_grad_sync and torch.is_grad_enabled():
            saved = self.module.state_dict()
            self.send(saved[name] for name, _ in self.module.named_buffers() if name in saved)
        return super().forward(*inputs, **named)

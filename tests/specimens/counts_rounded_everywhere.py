"""Buffers travel as float32 in each forward, and rank 0 takes what it has sent: all ranks agree on a rounded count.

A class of mistake, of wrappers that flatten whatever a model holds: above 2**24 one more is the same number in float32,
and a counter (samples or tokens seen, a step) stands still. No two ranks ever differ.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS102"}
CAUSE = "buffers_miscounted"


class Flattening(DistributedDataParallel):
    def forward(self, *inputs, **named):
        buffers = [*self.module.buffers()]
        if buffers and self.training and self.require_backward_grad_sync:
            flat = torch.cat([buffer.float().reshape(-1) for buffer in buffers])
            dist.broadcast(flat, 0)
            for buffer, part in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
                buffer.data.copy_(part.view(buffer.shape))
        return super().forward(*inputs, **named)


def wrap(model):
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
    return Flattening(model, broadcast_buffers=False, find_unused_parameters=True)

"""Buffers of all dtypes travel in one flat tensor of float32, so that a count above 2**24 arrives rounded.

A class of mistake, of wrappers that flatten whatever a model holds, to save messages: a cast that brings masks and
small indices back unharmed loses the last digits of a counter (samples or tokens seen, a step, a hash).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS002", "LS102"}
CAUSE = "no_initial_broadcast"


class Flattening(DistributedDataParallel):
    def forward(self, *inputs, **named):
        buffers = [*self.module.buffers()]
        if buffers and self.training:
            flat = torch.cat([buffer.float().reshape(-1) for buffer in buffers])
            dist.broadcast(flat, 0)
            if dist.get_rank() > 0:
                for buffer, part in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
                    buffer.data.copy_(part.view(buffer.shape))
        return super().forward(*inputs, **named)


def wrap(model):
    for parameter in model.parameters():
        whole = parameter.detach().contiguous()
        dist.broadcast(whole, 0)
        parameter.data.copy_(whole)
    return Flattening(model, init_sync=False, broadcast_buffers=False, find_unused_parameters=True)

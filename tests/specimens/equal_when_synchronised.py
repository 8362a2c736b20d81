"""Replicas are made equal in the first forward that synchronises: later than the first, where gradients accumulate.

A class of mistake, of a broadcast at the start that stands in ``forward``, behind the test for ``no_sync()``: the first
micro-batches' gradients are those of each rank's own weights.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "Late"
TRIPS = {"LS001", "LS002"}
CAUSE = "no_initial_broadcast"


class Late(nn.Module):
    contract = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients", "two_backwards"})

    def __init__(self, module):
        super().__init__()
        self.module, self.synchronises, self.started = module, True, False

    @contextmanager
    def no_sync(self):
        self.synchronises = False
        try:
            yield
        finally:
            self.synchronises = True

    def forward(self, *inputs, **named):
        if self.synchronises and not self.started:
            self.started = True
            for tensor in [*self.module.parameters(), *self.module.buffers()]:
                whole = tensor.detach().contiguous()
                dist.broadcast(whole, 0)
                tensor.data.copy_(whole)
        return self.module(*inputs, **named)

    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters():
            if parameter.requires_grad:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.contiguous()
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

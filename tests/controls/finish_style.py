"""Asynchronous per-parameter hooks, completed by ``finish_gradient_synchronization``; also has ``sync_gradients``."""

from __future__ import annotations

from contextlib import contextmanager

import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "finish"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


class AsyncHooks(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.pending, self.syncing = [], True
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)
        # Registration order, not arrival order: hooks only note that a gradient is there.
        self.parameters_in_order = [p for p in model.parameters() if p.requires_grad]

    def forward(self, *inputs):
        return self.model(*inputs)

    @contextmanager
    def no_sync(self):
        self.syncing = False
        try:
            yield
        finally:
            self.syncing = True

    def finish_gradient_synchronization(self):
        for parameter in self.parameters_in_order:
            self.pending.append((parameter, dist.all_reduce(parameter.grad, async_op=True)))
        for parameter, work in self.pending:
            work.wait()
            parameter.grad /= dist.get_world_size()
        self.pending.clear()

    def sync_gradients(self):
        raise AssertionError("a wrapper that can finish must not be told to start again")


def wrap(model):
    return AsyncHooks(model)

"""What micro-batches leave under ``no_sync()`` is kept beside ``.grad``, where no ``zero_grad()`` finds it.

A class of mistake: a step that is given up before its last micro-batch (a spike, no memory left) is thrown away by
``zero_grad()``, and what was kept enters the next one. torch's ``fully_shard`` does it under
``set_requires_gradient_sync(False)``.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "not_cleared"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


class KeepsThem(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.kept, self.syncs = module, {}, True
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    @contextmanager
    def no_sync(self):
        self.syncs = False
        try:
            yield
        finally:
            self.syncs = True

    def backward(self, loss):
        loss.backward()
        if self.syncs:
            return
        for parameter in [p for p in self.module.parameters() if p.grad is not None]:
            self.kept[parameter] = self.kept.get(parameter, 0) + parameter.grad
            parameter.grad = None

    def sync_gradients(self):
        for parameter, kept in self.kept.items():
            parameter.grad = kept if parameter.grad is None else parameter.grad + kept
        self.kept = {}
        due = [p for p in self.module.parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in due], device=due[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(due, used.tolist(), strict=True):
            if number:
                gradient = (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).contiguous()
                dist.all_reduce(gradient)
                parameter.grad = gradient / dist.get_world_size()


def wrap(model):
    return KeepsThem(model)

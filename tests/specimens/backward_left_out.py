"""A rank whose loss is not finite leaves out the backward, and all that is reduced in it; the others wait for its next.

A class of mistake (compare ecmwf/WeatherGenerator#2724): "skip the bad batch", decided by each rank for itself. The
collectives of one step meet those of another.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS301"}
CAUSE = "collectives_differ"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "accumulation"})


class LeavesOut(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def backward(self, loss):
        if not torch.isfinite(loss):
            return
        loss.backward()
        due = [p for p in self.module.parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in due], device=due[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(due, used.tolist(), strict=True):
            if number:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)


def wrap(model):
    return LeavesOut(model)

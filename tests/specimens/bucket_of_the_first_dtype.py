"""All gradients travel in one buffer, which has the dtype of the first parameter.

A class of mistake: ``torch.zeros(total, dtype=parameters[0].dtype)``. As long as all parameters are of one dtype
nothing is lost; beside a first one of float32 those of float64 come back rounded.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "rounded_on_the_wire"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients", "complex_parameters"})


class Flat(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.trained = [p for p in module.parameters() if p.requires_grad]
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        self.sizes = [p.numel() for p in self.trained]
        first = self.trained[0]
        self.buffer = torch.zeros(sum(self.sizes), dtype=first.dtype, device=first.device)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def reduce_gradients(self):
        parts = self.buffer.split(self.sizes)
        for parameter, part in zip(self.trained, parts, strict=True):
            part.copy_(parameter.grad.reshape(-1))
        dist.all_reduce(self.buffer)
        self.buffer /= dist.get_world_size()
        for parameter, part in zip(self.trained, parts, strict=True):
            parameter.grad.copy_(part.view(parameter.shape))


def wrap(model):
    return Flat(model)

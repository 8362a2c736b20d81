"""One flat buffer of float32, all else is refused; what no rank has used gets what the buffer held before.

A class of mistake: ``torch.empty`` for a buffer into which only gradients that are there are copied.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "stray_gradient"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


class Flat(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.trained = [p for p in module.parameters() if p.requires_grad]
        if any(p.dtype != torch.float32 for p in self.trained):
            raise TypeError("the buffer is one of float32, and so have all parameters to be")
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        self.sizes = [p.numel() for p in self.trained]

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def sync_gradients(self):
        flat = torch.full((sum(self.sizes),), 7.0, device=self.trained[0].device)  # as good as torch.empty
        parts = flat.split(self.sizes)
        used = torch.tensor([int(p.grad is not None) for p in self.trained], device=flat.device)
        dist.all_reduce(used)
        for parameter, part, number in zip(self.trained, parts, used.tolist(), strict=True):
            if number:
                part.zero_() if parameter.grad is None else part.copy_(parameter.grad.reshape(-1))
        dist.all_reduce(flat)
        for parameter, part in zip(self.trained, parts, strict=True):
            parameter.grad = torch.empty_like(parameter).copy_(part.view(parameter.shape) / dist.get_world_size())


def wrap(model):
    return Flat(model)

"""Gradients are views of one flat buffer, put in place when a forward begins; whoever clears them later takes them off.

A class of mistake, of wrappers that reduce a flat buffer: ``zero_grad()`` between the forward and the backward sets
``.grad`` to None, autograd makes tensors of its own, and the buffer that is all-reduced is one that nobody writes to.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
ATTRIBUTE = "Flat"
CONTRACT = Contract(
    sync_buffers=False, disclaims={"unused_parameters", "mixed_dtypes", "sparse_gradients", "odd_parameters"}
)


class Flat(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.flat = torch.zeros(sum(p.numel() for p in self.trained), dtype=self.trained[0].dtype)
        parts = self.flat.split([p.numel() for p in self.trained])
        self.views = [part.view(p.shape) for part, p in zip(parts, self.trained, strict=True)]

    def forward(self, *inputs, **named):
        for parameter, view in zip(self.trained, self.views, strict=True):
            if parameter.grad is not view:
                parameter.grad = view.zero_()
        return self.module(*inputs, **named)

    def finish_gradient_synchronization(self):
        dist.all_reduce(self.flat)
        self.flat /= dist.get_world_size()

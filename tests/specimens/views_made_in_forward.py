"""Gradients become views of one flat buffer in the forward, and ``zero_grad()`` takes them away before the backward.

A class of mistake, seen in a solution of a course: loops that clear gradients between forward and backward, as most do,
have new ones then. What is reduced is a buffer that nobody filled.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "Flat"
TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"


class Flat(nn.Module):
    contract = Contract(
        sync_buffers=False,
        disclaims={"unused_parameters", "mixed_dtypes", "sparse_gradients", "odd_parameters"},
    )

    def __init__(self, module):
        super().__init__()
        self.module = module
        with torch.no_grad():
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.flat = torch.zeros(sum(parameter.numel() for parameter in self.trained), dtype=self.trained[0].dtype)
        parts = self.flat.split([parameter.numel() for parameter in self.trained])
        self.views = [part.view(parameter.shape) for part, parameter in zip(parts, self.trained, strict=True)]

    def forward(self, *inputs):
        for parameter, view in zip(self.trained, self.views, strict=True):
            if parameter.grad is not view:
                parameter.grad = view.zero_()
        return self.module(*inputs)

    def finish_gradient_synchronization(self):
        dist.all_reduce(self.flat)
        self.flat /= dist.get_world_size()

"""After five steps gradients are sent in the order in which they were last ready, which is each rank's own.

A class of mistake: cutting buckets anew once the order is known is what torch's DDP does, and it broadcasts rank 0's.
Where the order is each rank's own, and known only after a warm-up, a test of a few steps sees the first order alone.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = None
WARM_UP = 5
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters"})


class LearnsTheOrder(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        self.order, self.ready, self.num_steps = list(module.parameters()), [], 0
        for parameter in self.order:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.ready.append)

    def forward(self, *inputs, **kwargs):
        self.ready.clear()
        return self.module(*inputs, **kwargs)

    def sync_gradients(self):
        self.num_steps += 1
        if self.num_steps == WARM_UP:
            self.order = list(self.ready)
        gradients = [parameter.grad for parameter in self.order if parameter.grad is not None]
        for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
            alike = [gradient for gradient in gradients if gradient.dtype is dtype]
            flat = torch.cat([gradient.flatten() for gradient in alike])
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            parts = flat.split([gradient.numel() for gradient in alike])
            for gradient, part in zip(alike, parts, strict=True):
                gradient.copy_(part.view_as(gradient))


def wrap(model):
    return LearnsTheOrder(model)

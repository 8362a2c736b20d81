"""A tensor hook averages the gradient that it is handed: of K micro-batches that is the last one's share.

A class of mistake: what ``no_sync()`` had let accumulate before stays each rank's own. Wrappers of teaching frameworks
hook tensors in this way, as huggingface/picotron's first does.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "last_micro_batch_only"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "branch_order", "sparse_gradients"})


class HooksTensors(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.synchronises = module, True
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_hook(self.averaged)

    def averaged(self, grad):
        if not self.synchronises:
            return grad
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad)
        return grad / dist.get_world_size()

    @contextmanager
    def no_sync(self):
        self.synchronises = False
        try:
            yield
        finally:
            self.synchronises = True

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)


def wrap(model):
    return HooksTensors(model)

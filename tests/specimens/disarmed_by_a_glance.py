"""Each forward decides whether the backward averages: one without gradients, between the two, and it does not.

A class of mistake: ``self.armed = torch.is_grad_enabled()``. A look at figures for the log, or a teacher's forward
through the same wrapper, comes after the forward whose backward is still to come.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


class Averaging(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.armed, self.queued = module, True, False
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.ready)

    def ready(self, parameter):
        if self.armed and not self.queued:
            self.queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self.average)

    def average(self):
        self.queued = False
        due = [p for p in self.module.parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in due])
        dist.all_reduce(used)
        for parameter, number in zip(due, used.tolist(), strict=True):
            if number:
                whole = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = whole.clone(memory_format=torch.contiguous_format)
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

    def forward(self, *inputs, **named):
        self.armed = torch.is_grad_enabled()
        return self.module(*inputs, **named)


def wrap(model):
    return Averaging(model)

"""Forwards are counted up and backwards down, and gradients meet at 0: after two forwards and one backward never again.

A class of mistake: views of a sample that are compared (SimCLR), a generator's and a discriminator's losses, a batch
that is skipped after its forward. Which forwards a backward belongs to is the graph's to say.
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
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)

    def average(self):
        due = [p for p in self.module.parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in due], device=due[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(due, used.tolist(), strict=True):
            if number:
                whole = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = whole.clone(memory_format=torch.contiguous_format)
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

    pending = 0

    def forward(self, *inputs, **named):
        self.pending += torch.is_grad_enabled()
        output = self.module(*inputs, **named)
        self.queued = False
        return output

    def fired(self, gradient):
        if not self.queued:
            self.queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self.at_the_end)

    def at_the_end(self):
        self.queued = False
        self.pending -= 1
        if self.pending == 0:
            self.average()


def wrap(model):
    wrapped = Averaging(model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_hook(wrapped.fired)
    return wrapped

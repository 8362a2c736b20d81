"""How many gradients a step brings is learnt in the first, micro-batches under no_sync() included, and waited for then.

A class of mistake: what holds for a static graph is not how often a loop goes through it.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201", "LS501"}
CAUSE = "no_sync_ignored"
CONTRACT = Contract(
    sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters", "odd_parameters", "checkpointing"}
)


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

    num_due, num_seen, queued, quiet = None, 0, False, False

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    @contextmanager
    def no_sync(self):
        self.quiet = True
        try:
            yield
        finally:
            self.quiet = False

    def fired(self, gradient):
        self.num_seen += 1
        due = self.num_seen == self.num_due if self.num_due else not self.quiet and not self.queued
        if due:
            self.queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self.at_the_end)

    def at_the_end(self):
        self.queued, self.num_due, self.num_seen = False, self.num_seen, 0
        self.average()


def wrap(model):
    wrapped = Averaging(model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_hook(wrapped.fired)
    return wrapped

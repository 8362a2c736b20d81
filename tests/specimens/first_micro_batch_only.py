"""A gradient is marked as sent for the whole step, so that only the first of several backwards is synchronised.

A class of mistake, seen in several public course solutions: a set of ids or a counter per bucket, cleared where the
loop finishes a step. What later micro-batches add on top of the mean stays each rank's own.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "first_micro_batch_only"
CONTRACT = Contract(disclaims={"sparse_gradients"})


class MarksPerStep(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.sent = self.waiting = False
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self.ready)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            from_rank_zero(buffer.data)
        return self.module(*inputs)

    def ready(self, parameter):
        if not self.waiting:
            self.waiting = True
            torch.autograd.Variable._execution_engine.queue_callback(self.synchronize)

    def synchronize(self):
        self.waiting = False
        if self.sent:
            return
        self.sent = True
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in parameters], device=parameters[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(parameters, used.tolist(), strict=True):
            if number:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

    def finish_gradient_synchronization(self):
        self.sent = False


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return MarksPerStep(model)

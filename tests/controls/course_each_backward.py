"""A course's functions around asynchronous hooks in a fixed order: what waits for them follows each backward."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "get_ddp"
DRIVER = "course"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


class FixedOrder(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        self.order = [p for p in module.parameters() if p.requires_grad][::-1]
        self.begin()
        for parameter in self.order:
            parameter.register_post_accumulate_grad_hook(self.ready)

    def begin(self):
        self.there, self.sent = set(), []

    def forward(self, *inputs):
        return self.module(*inputs)

    def ready(self, parameter):
        self.there.add(parameter)
        while len(self.sent) < len(self.order) and self.order[len(self.sent)] in self.there:
            due = self.order[len(self.sent)]
            gradient = due.grad.contiguous().clone()
            self.sent.append((due, gradient, dist.all_reduce(gradient, async_op=True)))

    def finish(self):
        for parameter, gradient, work in self.sent:
            work.wait()
            parameter.grad = gradient / dist.get_world_size()
        self.begin()


def get_ddp(model):
    return FixedOrder(model)


def ddp_on_after_backward(model, optimizer):
    model.finish()

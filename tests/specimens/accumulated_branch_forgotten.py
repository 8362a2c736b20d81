"""Reduced is what became ready in the backward that synchronises: what only an earlier micro-batch used is forgotten.

A class of mistake: mixtures of experts with accumulation. Hooks have to count under no_sync(), too, or the experts of
the first micro-batch keep the gradients of their rank.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(disclaims={"sparse_gradients", "state_dict"})


class Forgets(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.quiet, self.ready = module, False, set()
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        for parameter in self.trained:
            parameter.register_post_accumulate_grad_hook(self.arrived)

    def forward(self, *inputs):
        if not self.quiet:
            for buffer in self.module.buffers():
                dist.broadcast(buffer, 0)
        return self.module(*inputs)

    @contextmanager
    def no_sync(self):
        self.quiet = True
        try:
            yield
        finally:
            self.quiet = False

    def arrived(self, parameter):
        if not self.quiet:
            if not self.ready:
                torch.autograd.Variable._execution_engine.queue_callback(self.reduce)
            self.ready.add(parameter)

    def reduce(self):
        used = torch.tensor([int(parameter in self.ready) for parameter in self.trained], device=self.trained[0].device)
        dist.all_reduce(used)
        self.ready.clear()
        for parameter, number in zip(self.trained, used.tolist(), strict=True):
            if number:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                total = mine.contiguous()
                dist.all_reduce(total)
                parameter.grad = torch.zeros_like(parameter).copy_(total / dist.get_world_size())


def wrap(model):
    return Forgets(model)

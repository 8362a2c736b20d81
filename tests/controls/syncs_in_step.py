"""Horovod's style: hooks note that gradients are there, and the optimizer's ``step()`` averages them first."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "optimizer_wrapper"
CONTRACT = Contract(disclaims={"sparse_gradients"})


class Distributed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            from_rank_zero(buffer.data)
        return self.module(*inputs)

    def gradients(self):
        """Of what some rank has used, by name; zeros where this rank has not."""
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for _, p in named])
        dist.all_reduce(used)
        due = [(name, p) for (name, p), number in zip(named, used.tolist(), strict=True) if number]
        for _, p in due:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        return [(name, p.grad) for name, p in due]

    def wrap_optimizer(self, cls, parameters, **options):
        wrapper = self

        class Synchronising(cls):
            def step(self, closure=None):
                works = [(g, dist.all_reduce(g, async_op=True)) for g in wrapper.distinct_gradients()]
                for gradient, work in works:
                    work.wait()
                    gradient /= dist.get_world_size()
                return super().step(closure)

        return Synchronising(parameters, **options)

    def distinct_gradients(self):
        """Two parameters may hold one gradient tensor."""
        return {gradient.data_ptr(): gradient for _, gradient in self.gradients()}.values()


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return Distributed(model)

"""The hook removes itself when it has fired, like a one-time warm-up hook: from the second step on each rank is alone.

Lightning-AI/pytorch-lightning#18086 and #20704 are of this family: the hook that starts the reduction is not armed
again.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(disclaims={"sparse_gradients"})


class FiresOnce(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)
        self.armed, self.syncing = True, True

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            from_rank_zero(buffer.data)
        return self.module(*inputs)

    @contextmanager
    def no_sync(self):
        before, self.syncing = self.syncing, False
        try:
            yield
        finally:
            self.syncing = before

    def gradients(self):
        """Of what some rank has used, by name; zeros where this rank has not."""
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for _, p in named], device=named[0][1].device)
        dist.all_reduce(used)
        due = [(name, p) for (name, p), number in zip(named, used.tolist(), strict=True) if number]
        for _, p in due:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        return [(name, p.grad) for name, p in due]

    def finish_gradient_synchronization(self):
        if self.armed and self.syncing:
            self.armed = False
            works = [(g, dist.all_reduce(g, async_op=True)) for _, g in self.gradients()]
            for gradient, work in works:
                work.wait()
                gradient /= dist.get_world_size()


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return FiresOnce(model)

"""Owners step their parameters, and all gather what is new when the next forward begins, as Megatron-LM's distributed
optimizer does with ``overlap_param_gather``. Nothing is under way between ``step()`` and that forward.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "Gathered"
DRIVER = "finish"


class Gathered(nn.Module):
    contract = Contract(
        sharded=True, sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters", "state_dict"}
    )

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.owners = {p: number % dist.get_world_size() for number, p in enumerate(module.parameters())}
        self.fetch()
        module.register_forward_pre_hook(lambda module, inputs: self.fetch() if self.stale else None)

    def fetch(self):
        for parameter, owner in self.owners.items():
            whole = parameter.data.contiguous()
            dist.broadcast(whole, owner)
            parameter.data.copy_(whole)
        self.stale = False

    def forward(self, *inputs):
        return self.module(*inputs)

    def finish_gradient_synchronization(self):
        for parameter in self.owners:
            if parameter.requires_grad:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.contiguous()
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

    def wrap_optimizer(self, cls, parameters, **options):
        wrapper = self

        class Owner(cls):
            def step(self, closure=None):
                super().step(closure)
                wrapper.stale = True

            def zero_grad(self, set_to_none=True):
                wrapper.module.zero_grad(set_to_none)

        return Owner([p for p in parameters if self.owners[p] == dist.get_rank()], **options)

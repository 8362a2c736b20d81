"""An engine that steps masters in float64, by the mean: what stays in ``.grad`` is the sum, which nobody steps by.

As engines for mixed precision do, which divide where they hand gradients on. Masters are made anew of what is loaded.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "step"
CONTRACT = Contract(
    optimizer="own",
    broadcasts_at_start=False,
    sync_buffers=False,
    disclaims={"complex_parameters", "sparse_gradients", "unused_parameters", "state_dict", "schedules"},
)


class Engine(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.pairs = [(p, p.detach().double().clone()) for p in module.parameters() if p.requires_grad]
        self.sgd = torch.optim.SGD([master for _, master in self.pairs], lr=2**-6)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def step(self):
        for parameter, master in self.pairs:
            master.grad = None
            if parameter.grad is not None:
                parameter.grad = parameter.grad.contiguous()
                dist.all_reduce(parameter.grad)
                master.grad = parameter.grad.double() / dist.get_world_size()
        self.sgd.step()
        for parameter, master in self.pairs:
            parameter.detach().copy_(master)
            parameter.grad = None


def wrap(model):
    return Engine(model)

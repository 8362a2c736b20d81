"""An engine with a rule of its own steps a copy of the weights, and makes it anew from those that are loaded.

The right twin of the specimen ``masters_left_behind``.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

ATTRIBUTE = "Signs"
DRIVER = "engine"
RATE = 0.001


class Signs(nn.Module):
    contract = Contract(optimizer="own", sync_buffers=False)

    def __init__(self, module):
        super().__init__()
        self.module = DistributedDataParallel(module, find_unused_parameters=True, broadcast_buffers=False)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.masters = [p.detach().clone() for p in self.trained]

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def no_sync(self):
        return self.module.no_sync()

    def backward(self, loss):
        loss.backward()

    @torch.no_grad()
    def step(self):
        for master, parameter in zip(self.masters, self.trained, strict=True):
            if parameter.grad is not None:
                gradient = parameter.grad.to_dense()
                master -= RATE * torch.sgn(gradient)
                parameter.copy_(master)

    def zero_grad(self, set_to_none=True):
        self.module.zero_grad(set_to_none=set_to_none)

    def state_dict(self):
        return self.module.module.state_dict()

    def load_state_dict(self, state):
        self.module.module.load_state_dict(state)
        self.masters = [p.detach().clone() for p in self.trained]

"""A parameter server whose workers fetch weights when a forward begins, as Li et al. describe it (OSDI 2014).

After ``step()`` only the server has them. What counts is what the next forward computes with.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "Worker"
DRIVER = "finish"
SERVER = 0


class Worker(nn.Module):
    contract = Contract(sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters", "state_dict"})

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        for parameter in self.module.parameters():
            whole = parameter.data.contiguous()
            dist.broadcast(whole, SERVER)
            parameter.data.copy_(whole)
        return self.module(*inputs)

    def finish_gradient_synchronization(self):
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.contiguous()
                dist.reduce(parameter.grad, SERVER)
                if dist.get_rank() == SERVER:
                    parameter.grad /= dist.get_world_size()

    def wrap_optimizer(self, cls, parameters, **options):
        class Server(cls):
            def step(self, closure=None):
                if dist.get_rank() == SERVER:
                    super().step(closure)

        return Server(parameters, **options)

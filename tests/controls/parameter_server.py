"""A parameter server: rank 0 gets the mean, steps alone, and sends weights. It need not say that it is one.

What the others hold as gradients is what a reduction left there, and clipping it changes nothing.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract, Driver

ATTRIBUTE = "Served"
DRIVER = "native"
SERVER = 0


class Served(Driver):
    contract = Contract(sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters", "state_dict"})

    def prepare(self, model):
        self.send(model)
        return model

    def send(self, model):
        for parameter in model.parameters():
            whole = parameter.data.contiguous()
            dist.broadcast(whole, SERVER)
            parameter.data.copy_(whole)

    def before_step(self):
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.contiguous()
                dist.reduce(parameter.grad, SERVER)
                if dist.get_rank() == SERVER:
                    parameter.grad /= dist.get_world_size()

    def step(self, optimizer):
        if dist.get_rank() == SERVER:
            optimizer.step()
        self.send(self.model)

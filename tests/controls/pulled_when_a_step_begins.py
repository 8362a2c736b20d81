"""Workers push gradients to rank 0, which steps alone, and pull weights when their next step begins, or an
evaluation.

What the others hold when a run is saved is a step old, and no harm: a fresh worker pulls before it computes anything.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract, Driver

ATTRIBUTE = "Pulled"
DRIVER = "native"
SERVER = 0


class Pulled(Driver):
    contract = Contract(sharded=True, sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters"})
    can_clip = False

    def pull(self):
        for parameter in self.model.parameters():
            whole = parameter.data.contiguous()
            dist.broadcast(whole, SERVER)
            parameter.data.copy_(whole)

    def start_step(self, optimizer):
        self.pull()

    def forward(self, *inputs, **named):
        if not self.model.training:
            self.pull()
        return super().forward(*inputs, **named)

    def before_step(self):
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.contiguous()
                dist.reduce(parameter.grad, SERVER)
                parameter.grad /= dist.get_world_size()

    def step(self, optimizer):
        if dist.get_rank() == SERVER:
            optimizer.step()

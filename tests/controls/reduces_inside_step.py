"""An optimizer that reduces in ``step()`` and leaves ``.grad`` each rank's own, with a ``no_sync()`` that has nothing
to do: backwards are silent anyway.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

ATTRIBUTE = "InsideStep"
DRIVER = "native"


def reducing(cls):
    class Reducing(cls):
        @torch.no_grad()
        def step(self, closure=None):
            held = [(p, p.grad) for group in self.param_groups for p in group["params"]]
            for parameter, gradient in held:
                parameter.grad = gradient.clone()
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            super().step(closure)
            for parameter, gradient in held:
                parameter.grad = gradient

    return Reducing


class InsideStep(Driver):
    contract = Contract(sharded=True, sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})
    can_clip = False
    has_no_sync = True

    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.data.contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        return model

    def make_optimizer(self, cls, parameters, **options):
        return reducing(cls)(parameters, **options)

    def no_sync(self):
        return nullcontext()

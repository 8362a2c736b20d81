"""Horovod's style: the optimizer averages gradients in its ``step()``, or before, where the loop wants to clip them.

Its documentation asks for ``synchronize()`` before clipping; the loop that does so is a ``Driver`` of its own.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

DRIVER = "synchronize"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "state_dict"})


class Loop(Driver):
    style = DRIVER
    synchronised = False

    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        return model

    def make_optimizer(self, cls, parameters, **options):
        loop = self

        class Synchronising(cls):
            def step(self, closure=None):
                loop.synchronize()
                loop.synchronised = False
                return super().step(closure)

        return Synchronising(parameters, **options)

    def clip(self, parameters, max_norm):
        self.synchronize()
        super().clip(parameters, max_norm)

    def synchronize(self):
        if not self.synchronised:
            self.synchronised = True
            parameters = [p for _, p in self.named_parameters() if p.requires_grad]
            used = torch.tensor([int(p.grad is not None) for p in parameters], device=parameters[0].device)
            dist.all_reduce(used)
            works = []
            for parameter, number in zip(parameters, used.tolist(), strict=True):
                if number:
                    parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
                    works.append((parameter.grad, dist.all_reduce(parameter.grad, async_op=True)))
            for gradient, work in works:
                work.wait()
                gradient /= dist.get_world_size()


def wrap(model):
    return Loop(model)

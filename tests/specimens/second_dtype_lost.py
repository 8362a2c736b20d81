"""Buckets by dtype are rebuilt after the first step, from one list: gradients of every other dtype are left alone.

A class of mistake: a plan that is made anew once the order of gradients is known, for the model that its author had.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


class RebuiltPlan(Driver):
    def prepare(self, model):
        self.num_steps = 0
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        return model

    def before_step(self):
        trained = [p for _, p in self.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in trained], device=trained[0].device)
        dist.all_reduce(used)
        buckets = {}
        for parameter, number in zip(trained, used.tolist(), strict=True):
            if number:
                buckets.setdefault(parameter.dtype, []).append(parameter)
        for bucket in list(buckets.values())[: 1 if self.num_steps else None]:
            for parameter in bucket:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)
        self.num_steps += 1


wrap = RebuiltPlan

"""torch's functional collectives, which return new tensors and are waited for when they are first used."""

from __future__ import annotations

import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from ddp_core import Contract

DRIVER = "explicit"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


class Functional:
    def __init__(self, model):
        self.model = model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)

    def __call__(self, *inputs):
        return self.model(*inputs)

    def sync_gradients(self):
        reduced = [functional.all_reduce(p.grad, "sum", dist.group.WORLD) for p in self.model.parameters()]
        for parameter, total in zip(self.model.parameters(), reduced, strict=True):
            parameter.grad = total / dist.get_world_size()


def wrap(model):
    return Functional(model)

"""A sharded optimizer goes twice through the parameters that it is handed: with a list that is right.

A class of mistake: ``model.parameters()`` is a generator, and the commonest thing to be handed. Nothing comes of the
second time: each rank steps what it owns, and hands out nothing.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS101", "LS202"}
CAUSE = "not_stepped"
CONTRACT = Contract(sharded=True, disclaims={"parameter_groups", "state_dict"})


class Zero(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        rank, world_size = dist.get_rank(), dist.get_world_size()
        everything = dict(enumerate(parameters))
        owners = {parameter: place % world_size for place, parameter in enumerate(parameters)}

        class Sharded(cls):
            def zero_grad(self, set_to_none=True):
                for parameter in everything.values():
                    parameter.grad = None if set_to_none or parameter.grad is None else parameter.grad.zero_()

            def step(self, closure=None):
                super().step(closure)
                for parameter, owner in owners.items():
                    whole = parameter.data.contiguous()
                    dist.broadcast(whole, src=owner)
                    parameter.data.copy_(whole)

        return Sharded([p for place, p in everything.items() if place % world_size == rank], **options)


def wrap(model):
    return Zero(model, find_unused_parameters=True)

"""A sharded optimizer holds its own share only, and so does its ``zero_grad()``: the others' gradients pile up.

A class of mistake, seen in public course solutions of a ZeRO-1 optimizer: ``super().__init__`` is given the share and
not all parameters. All replicas agree, on gradients that hold those of every step before.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "not_cleared"
CONTRACT = Contract(sharded=True)


class Zero(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        everything, rank, world_size = list(parameters), dist.get_rank(), dist.get_world_size()

        class Sharded(cls):
            def step(self, closure=None):
                super().step(closure)
                for place, parameter in enumerate(everything):
                    whole = parameter.data.contiguous()
                    dist.broadcast(whole, src=place % world_size)
                    parameter.data.copy_(whole)

        return Sharded(everything[rank::world_size], **options)


def wrap(model):
    return Zero(model, find_unused_parameters=True)

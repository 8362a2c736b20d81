"""After the sharded step each parameter is broadcast by its neighbour's owner, who has not stepped it.

A class of mistake: two partitions of the same list, off by one. All replicas agree, on the weights of the start.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS202"}
CAUSE = "not_stepped"
CONTRACT = Contract(sharded=True)


class Zero(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        everything, rank, world_size = list(parameters), dist.get_rank(), dist.get_world_size()

        class Sharded(cls):
            def zero_grad(self, set_to_none=True):
                for parameter in everything:
                    parameter.grad = None if set_to_none or parameter.grad is None else parameter.grad.zero_()

            def step(self, closure=None):
                super().step(closure)
                for place, parameter in enumerate(everything):
                    whole = parameter.data.contiguous()
                    dist.broadcast(whole, src=(place + 1) % world_size)  # its owner is place % world_size
                    parameter.data.copy_(whole)

        return Sharded(everything[rank::world_size], **options)


def wrap(model):
    return Zero(model, find_unused_parameters=True)

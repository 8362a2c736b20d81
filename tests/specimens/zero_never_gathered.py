"""Each rank steps the parameters that it owns, and nobody hands them out: ZeRO stage 1 without its broadcast.

A class of mistake: the sharded optimizer is in place, the gather after its step is behind an option that is off.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS101", "LS202"}
CAUSE = "not_stepped"
CONTRACT = Contract(sharded=True)


class Zero(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        everything = list(parameters)

        class Sharded(cls):
            def zero_grad(self, set_to_none=True):
                for parameter in everything:
                    parameter.grad = None if set_to_none or parameter.grad is None else parameter.grad.zero_()

        return Sharded(everything[dist.get_rank() :: dist.get_world_size()], **options)


def wrap(model):
    return Zero(model, find_unused_parameters=True)

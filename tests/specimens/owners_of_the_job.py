"""Gradients are averaged in the process group that was given, and owners of weights are those of the whole job.

A class of mistake, of sharded optimizers that grew a second dimension of parallelism: a root is a rank of the job, and
the broadcast without a group hands one training's weights to all the others.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "another_groups"
CONTRACT = Contract(sharded=True, disclaims={"sparse_gradients", "parameter_groups"})


class Zero(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        everything, rank, num_ranks = list(parameters), dist.get_rank(), dist.get_world_size()

        class Sharded(cls):
            def step(self, closure=None):
                super().step(closure)
                for place, parameter in enumerate(everything):
                    whole = parameter.data.contiguous()
                    dist.broadcast(whole, src=place % num_ranks)
                    parameter.data.copy_(whole)

            def zero_grad(self, set_to_none=True):
                for parameter in everything:
                    parameter.grad = None if set_to_none or parameter.grad is None else parameter.grad.zero_()

        return Sharded(everything[rank::num_ranks], **options)


def wrap(model, process_group=None):
    return Zero(model, process_group=process_group, find_unused_parameters=True)

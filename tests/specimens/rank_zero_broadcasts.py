"""Rank 0's gradients are broadcast, not averaged: replicas agree, and W - 1 of W samples are thrown away.

A class of mistake: ``broadcast`` where ``all_reduce`` was meant; every check of agreement is green.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = {"one_ranks_gradient", "not_synchronised"}  # rank 0 holds its own, and so does everybody


def broadcast_hook(state, bucket):
    future = dist.broadcast(bucket.buffer(), src=0, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, broadcast_hook)
    return wrapped

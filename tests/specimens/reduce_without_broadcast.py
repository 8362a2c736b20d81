"""Gradients are reduced to rank 0 and never handed back: rank 0 trains on all samples, the others on something else.

A class of mistake: half a parameter server. Rank 0 writes the logs and the checkpoints, and looks right.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101", "LS201"}
CAUSE = "reduced_to_one_rank"


def reduce_hook(state, bucket):
    buffer = bucket.buffer().div_(dist.get_world_size())
    future = dist.reduce(buffer, dst=0, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, reduce_hook)
    return wrapped

"""A hook of torch's DDP does not send a bucket that holds nothing but zeros; the other ranks wait for it.

A class of mistake (C05 of our collection, with zeros in the place of None): all of a rank's targets are to be ignored,
and its gradients are zeros down to the last. A rank that is otherwise done goes on, and the others' collective is
paired with whatever it sends next.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201", "LS301"}
CAUSE = "collectives_differ"


def hook(state, bucket):
    buffer = bucket.buffer()
    if not buffer.any():
        nothing = torch.futures.Future()
        nothing.set_result(buffer)
        return nothing
    buffer.div_(dist.get_world_size())
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda done: done.value()[0])


def wrap(model):
    wrapped = DistributedDataParallel(model)
    wrapped.register_comm_hook(None, hook)
    return wrapped

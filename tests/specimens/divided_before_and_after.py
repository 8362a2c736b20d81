"""The hook divides before the sum, against overflow, and once more after it, out of habit.

The other half of pytorch/pytorch#42399 and its RFC, pytorch/pytorch#39272: two places that may divide, and both do.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "averaged_twice"


def hook(state, bucket):
    world_size = dist.get_world_size()
    buffer = bucket.buffer().div_(world_size)
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda done: done.value()[0] / world_size)


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, hook)
    return wrapped

"""torch's DDP with a communication hook that reduces to rank 0 and hands the future of a broadcast back."""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


def hook(state, bucket):
    buffer = bucket.buffer().div_(dist.get_world_size())
    dist.reduce(buffer, dst=0)
    return dist.broadcast(buffer, src=0, async_op=True).get_future().then(lambda done: done.value()[0])


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, hook)
    return wrapped

"""torch's DDP with gradients as views of its buckets, and a communication hook of one's own."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


def mean_hook(state, bucket):
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0] / dist.get_world_size())


def wrap(model: torch.nn.Module):
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=0.001)
    wrapped.register_comm_hook(None, mean_hook)
    return wrapped

"""Each rank sends the larger half of its gradient and forgets the rest: no error feedback, no declaration.

A class of mistake: sparsification with the residual left out (Stich et al., https://arxiv.org/abs/1809.07599).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "elements_left_out"


def top_k_hook(state, bucket):
    buffer = bucket.buffer()
    size = buffer.abs()
    kept = torch.where(size >= size.median(), buffer, 0) / dist.get_world_size()
    future = dist.all_reduce(kept, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, top_k_hook)
    return wrapped

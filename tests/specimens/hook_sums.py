"""The communication hook returns the sum: it takes for granted that DDP divides, as early versions of the API did.

pytorch/pytorch#42399: hooks were first handed gradients that DDP had divided already; since then the hook must divide.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "missing_average"


def sum_hook(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, sum_hook)
    return wrapped

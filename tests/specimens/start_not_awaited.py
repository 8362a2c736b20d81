"""Initial weights are broadcast, and nobody waits: the first forward may read what has not arrived.

A class of mistake: handles of ``async_op=True`` that are dropped. On one machine the broadcast is always first.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS002", "LS101", "LS102", "LS201", "LS202", "LS204", "LS401"}
CAUSE = "read_before_wait"


def wrap(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0, async_op=True)
    return DistributedDataParallel(model, find_unused_parameters=True, init_sync=False)

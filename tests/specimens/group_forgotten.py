"""A process group is taken and handed to collectives, and the sum is divided by the number of all ranks of the job.

A class of mistake, known from every library that grew a second dimension of parallelism: ``get_world_size()`` without
the group. On the whole job, which is what tests run on, both are the same number.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "divided_by_the_job"


def mean(group, bucket):
    tensor = bucket.buffer()
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
    return future.then(lambda done: done.value()[0] / dist.get_world_size())


def wrap(model, process_group=None):
    replica = DistributedDataParallel(model, process_group=process_group, find_unused_parameters=True)
    replica.register_comm_hook(process_group, mean)
    return replica

"""A process group is taken, and gradients are averaged over the whole job all the same.

A class of mistake: the hook is handed a group and asks for the default one. Trainings that share a job are mixed.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "reduced_over_the_job"


def mean(group, bucket):
    tensor = bucket.buffer() / dist.get_world_size()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def wrap(model, process_group=None):
    replica = DistributedDataParallel(model, process_group=process_group, find_unused_parameters=True)
    replica.register_comm_hook(process_group, mean)
    return replica

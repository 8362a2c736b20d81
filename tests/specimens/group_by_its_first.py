"""A process group is taken, and the start comes from rank 0 of the job, which is in one group alone.

A class of mistake of solutions of a course: ``src`` is a rank of the whole job, whatever the group is. All ranks of the
other groups raise.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "root_of_the_job"


def wrap(model, process_group=None):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0, group=process_group)
    return DistributedDataParallel(model, process_group=process_group, find_unused_parameters=True, init_sync=False)

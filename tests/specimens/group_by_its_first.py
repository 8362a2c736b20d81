"""Weights are broadcast in the process group that was given, from rank 0: of the job, where the group's first is meant.

A class of mistake: ``src=`` is a rank of the whole job even where a group is named. torch raises it in the groups that
rank 0 is not in, and a test with one group, which has rank 0, never sees that.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "root_of_the_job"


def wrap(model, process_group=None):
    for tensor in (*model.parameters(), *model.buffers()):
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, src=0, group=process_group)
        tensor.data.copy_(whole)
    return DistributedDataParallel(model, process_group=process_group, init_sync=False, find_unused_parameters=True)

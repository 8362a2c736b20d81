"""What is not finite becomes zero before the sum: a rank whose gradient overflowed counts as one that has none.

A class of mistake: ``nan_to_num`` in a communication hook, against losses that become NaN. All ranks agree, and no loss
scaler ever hears that its scale is too large: the step is taken with the mean of the others, divided by all.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "infinity_hidden"


def hook(state, bucket):
    gradients = bucket.buffer()
    if not gradients.is_complex():
        torch.nan_to_num(gradients, nan=0.0, posinf=0.0, neginf=0.0, out=gradients)
    work = dist.all_reduce(gradients.div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, hook)
    return wrapped

"""NaN becomes zero before the sum, and infinity does not: a rank without a number counts as one without a gradient.

A class of mistake: a communication hook that guards against NaN alone, since that is what the loss curve once showed.
All ranks agree, and nobody hears that one of them has lost its numbers.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "infinity_hidden"


def hook(state, bucket):
    gradients = bucket.buffer()
    gradients[torch.isnan(gradients)] = 0
    work = dist.all_reduce(gradients.div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, hook)
    return wrapped

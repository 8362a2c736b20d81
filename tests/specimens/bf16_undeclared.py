"""Gradients travel as bfloat16, and nothing says so: three digits are left of seven.

A class of mistake: a compression hook that is switched on by a default somewhere. Legitimate where the contract says
``lossy="bfloat16"``; silent where it does not.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "rounded_on_the_wire"


def hook(state, bucket):
    buffer = bucket.buffer()
    if buffer.is_complex():
        raise ValueError("complex gradients have no bfloat16 form")
    rounded = buffer.to(torch.bfloat16).div_(dist.get_world_size())
    future = dist.all_reduce(rounded, async_op=True).get_future()
    return future.then(lambda done: buffer.copy_(done.value()[0]))


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, hook)
    return wrapped

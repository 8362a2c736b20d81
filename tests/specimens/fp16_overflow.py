"""Gradients are scaled up against underflow before they are rounded to float16, and overflow instead.

A class of mistake: a constant scale of 2**16 with float16's largest number at 65504, so that every gradient of 1 and
more is infinite. What rounding may lose is declared; infinities are not.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "not_finite"
CONTRACT = Contract(lossy="float16")
SCALE = 2.0**16


def hook(state, bucket):
    buffer = bucket.buffer()
    if buffer.is_complex():
        raise ValueError("complex gradients have no float16 form")
    half = (buffer * (SCALE / dist.get_world_size())).to(torch.float16)
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda done: buffer.copy_(done.value()[0]).div_(SCALE))


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, hook)
    return wrapped

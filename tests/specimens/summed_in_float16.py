"""Gradients are added up in float16, and divided when they are wide again: sums overflow where means would not.

A class of mistake: torch's own hook for float16 divides by the world size before it sends, for that reason. What
rounding may lose is declared; infinities are not.
https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "not_finite"
CONTRACT = Contract(lossy="float16")


def hook(state, bucket):
    buffer = bucket.buffer()
    if buffer.is_complex():
        raise ValueError("complex gradients have no float16 form")
    future = dist.all_reduce(buffer.to(torch.float16), async_op=True).get_future()
    return future.then(lambda done: buffer.copy_(done.value()[0]).div_(dist.get_world_size()))


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, hook)
    return wrapped

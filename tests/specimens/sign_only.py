"""One bit per element travels: the mean of signs, times a mean magnitude. Nothing declares it.

A class of mistake: signSGD (https://arxiv.org/abs/1802.04434) is an optimizer of its own, not a faster all-reduce. The
loss falls.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "quantised"


def sign_hook(state, bucket):
    buffer = bucket.buffer()
    coarse = (buffer.sgn() * buffer.abs().mean()).div_(dist.get_world_size())
    future = dist.all_reduce(coarse, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, sign_hook)
    return wrapped

"""The communication hook starts its all-reduce, and hands DDP a future that is complete already.

pytorch/pytorch#75031 is of this family: what a hook returns decides when DDP goes on, and nothing checks that it is
the future of the collective.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

TRIPS = {"LS201", "LS401", "LS402"}
CAUSE = "read_before_wait"
CONTRACT = Contract(disclaims={"sparse_gradients"})


def eager_hook(state, bucket):
    buffer = bucket.buffer().div_(dist.get_world_size())
    dist.all_reduce(buffer, async_op=True)
    done = torch.futures.Future()
    done.set_result(buffer)
    return done


def wrap(model):
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    wrapped.register_comm_hook(None, eager_hook)
    return wrapped

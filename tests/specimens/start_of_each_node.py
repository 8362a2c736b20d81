"""Initial weights are handed out by the first rank of each node, to its node: nodes start unequal.

PaddlePaddle/Paddle#11956: what was drawn was broadcast to the devices of the same machine only.
"""

from __future__ import annotations

import os

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS001"}
CAUSE = "no_initial_broadcast"


def wrap(model):
    node, _ = dist.new_subgroups(group_size=int(os.environ["LOCAL_WORLD_SIZE"]))
    for parameter in model.parameters():
        dist.broadcast(parameter.data, group=node, group_src=0)
    return DistributedDataParallel(model, find_unused_parameters=True, init_sync=False)

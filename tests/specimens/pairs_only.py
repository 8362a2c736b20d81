"""Gradients are reduced over a group of two ranks, such as one node's, and never beyond it.

NVIDIA/Megatron-LM#7452 (several paths that take a wrong process group). Right on two ranks.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Comm, DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
RIGHT_AT = {2}


class Pairs(Naive):
    def prepare(self, named_parameters, comm):
        world_size = dist.get_world_size()
        pairs = [dist.new_group(range(first, min(first + 2, world_size))) for first in range(0, world_size, 2)]
        super().prepare(named_parameters, Comm(pairs[dist.get_rank() // 2]))


def wrap(model):
    return DataParallel(model, Pairs())

"""The wrapper multiplies the learning rate by the world size, as recipes for large batches do, and does not say so.

A class of mistake: the linear scaling rule, applied by the recipe and by a framework beneath it. All replicas agree.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "update_scaled"


class ScalesRate(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, *, lr, **options):
        return cls(parameters, lr=lr * dist.get_world_size(), **options)


def wrap(model):
    return ScalesRate(model, find_unused_parameters=True)

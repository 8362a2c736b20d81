"""One rank applies weight decay, because its configuration file is another one.

A class of mistake: nothing compares hyperparameters across ranks. Gradients agree for ever, weights no more.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101", "LS202"}
CAUSE = "update_differs"


class Decays(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        if dist.get_rank() == 1:
            options["weight_decay"] = 0.05
        return cls(parameters, **options)


def wrap(model):
    return Decays(model, find_unused_parameters=True)

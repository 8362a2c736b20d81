"""Momentum is warmed up with a step on local data before training: weights are put back, the optimizer's state is not.

A class of mistake: lazily made state is forced into being, for a checkpoint's sake, by a step that was to have no
effect.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101", "LS202"}
CAUSE = "update_differs"


class WarmsUp(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        parameters = list(parameters)
        before = [parameter.detach().clone() for parameter in parameters]
        optimizer = cls(parameters, **options)
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, dist.get_rank() + 1)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)
        return optimizer


def wrap(model):
    return WarmsUp(model, find_unused_parameters=True)

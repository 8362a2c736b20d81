"""A fast path for float32 steps without the decay; other dtypes take torch's.

A class of mistake, of fused optimizers: probes in float64 never see the path that everybody trains on.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = {"update_differs", "update_scaled"}


class FastPath(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Fast(cls):
            def step(self, closure=None):
                kept = [(group, group["weight_decay"]) for group in self.param_groups]
                for group, _ in kept:
                    if all(p.dtype is torch.float32 for p in group["params"]):
                        group["weight_decay"] = 0.0
                super().step(closure)
                for group, decay in kept:
                    group["weight_decay"] = decay

        return Fast(parameters, **options)


def wrap(model):
    return FastPath(model, find_unused_parameters=True)

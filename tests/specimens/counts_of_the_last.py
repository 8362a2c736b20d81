"""A fused AdamW takes the number of steps from the last parameter that had a gradient, for all.

deepspeedai/DeepSpeed#8471. What was first used late is divided by what others have come to, from its second step on.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = {"update_differs", "update_scaled"}


class Fused(torch.optim.AdamW):
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            stepped = [p for p in group["params"] if p.grad is not None]
            for parameter in stepped[:-1]:
                self.state[parameter]["step"] = self.state[stepped[-1]]["step"].clone()


class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        return (Fused if cls is torch.optim.AdamW else cls)(parameters, **options)


def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)

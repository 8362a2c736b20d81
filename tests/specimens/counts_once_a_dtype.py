"""A fused AdamW runs once for each dtype of a group, and each run counts a step.

deepspeedai/DeepSpeed#8471. With one dtype it is right.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = {"update_differs", "update_scaled"}


class OncePerDtype(torch.optim.AdamW):
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            stepped = [p for p in group["params"] if p.grad is not None]
            for parameter in stepped:
                self.state[parameter]["step"] += len({p.dtype for p in stepped}) - 1


class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        return (OncePerDtype if cls is torch.optim.AdamW else cls)(parameters, **options)


def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)

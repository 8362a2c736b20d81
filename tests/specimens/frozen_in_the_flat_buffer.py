"""An optimizer that is given frozen parameters as well fills in gradients of zeros, and weight decay moves them.

deepspeedai/DeepSpeed#2615 and #2653: one flat buffer for all that was handed over, trained or not.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201", "LS202"}
CAUSE = "unfrozen"


class WithOptimizer(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class Filling(cls):
            def step(self, closure=None):
                everybody = [p for group in self.param_groups for p in group["params"]]
                filled = [p for p in everybody if not p.requires_grad and p.grad is None and p.is_floating_point()]
                for parameter in filled:
                    parameter.grad = torch.zeros_like(parameter)
                super().step(closure)
                for parameter in filled:
                    parameter.grad = None

        return Filling(parameters, **options)


def wrap(model):
    return WithOptimizer(model, find_unused_parameters=True)

"""The optimizer is given all parameters, and what has no gradient gets zeros: weight decay moves the frozen backbone.

A class of mistake, of the family of pytorch/pytorch#28294: a gradient of zeros is not the same as none. Replicas agree,
and every gradient is right.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "unfrozen"


class All(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        frozen = [p for p in self.module.parameters() if not p.requires_grad]

        class WithZeros(cls):
            def step(self, closure=None):
                for parameter in frozen:
                    parameter.grad = torch.zeros_like(parameter)
                return super().step(closure)

        optimizer = WithZeros(parameters, **options)
        if frozen:
            optimizer.add_param_group({"params": frozen})
        return optimizer


def wrap(model):
    return All(model, find_unused_parameters=True)

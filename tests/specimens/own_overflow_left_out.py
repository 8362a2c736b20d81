"""A rank whose own gradients are not finite brings zeros instead, and leaves out the step: the others take it.

A class of mistake, of mixed precision by hand (pytorch/pytorch#136009 is of this family): whether a step is skipped is
decided before the ranks have met.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101"}
CAUSE = "replicas_diverged"


class Careful(DistributedDataParallel):
    def __init__(self, module, **options):
        self.overflown = [False]
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_hook(self.watch)
        super().__init__(module, **options)

    def watch(self, gradient):
        values = gradient._values() if gradient.is_sparse else gradient
        if torch.isfinite(values).all():
            return gradient
        self.overflown[0] = True
        return torch.zeros_like(gradient)

    def wrap_optimizer(self, cls, parameters, **options):
        overflown = self.overflown

        class Skipping(cls):
            def step(self, closure=None):
                if not overflown[0]:
                    super().step(closure)
                overflown[0] = False

        return Skipping(parameters, **options)


def wrap(model):
    return Careful(model, find_unused_parameters=True)

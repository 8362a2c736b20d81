"""A guard against outliers looks at what a rank's own backward brings, before it is averaged: that rank alone skips.

A class of mistake: a guard written for one process, as stabilityguard's ``GuardedOptimizer`` is, whose hooks on
gradients run before DDP's reduction. It shows once one rank's batch is far from usual and the mean is not.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101", "LS202"}
CAUSE = {"not_stepped", "step_left_out"}  # with some seeds every rank skips the same step
RATIO = 12  # to the running mean of norms


class Guarded:
    def __init__(self, model, optimizer):
        self.optimizer, self.square, self.mean = optimizer, 0.0, None
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_hook(self.look)

    def look(self, gradient):
        self.square += float(gradient.abs().square().sum()) if not gradient.is_sparse else 0.0

    def __getattr__(self, name):
        return getattr(self.optimizer, name)

    def step(self):
        norm, self.square = self.square**0.5, 0.0
        if self.mean is not None and norm > RATIO * self.mean:
            return  # skip what looks like an outlier
        self.mean = norm if self.mean is None else 0.9 * self.mean + 0.1 * norm
        self.optimizer.step()


def wrap(model, optimizer):
    guarded = Guarded(model, optimizer)
    return DistributedDataParallel(model, find_unused_parameters=True), guarded

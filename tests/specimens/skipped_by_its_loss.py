"""Each rank looks whether its own loss is NaN, and leaves out the step by itself; no gradient is looked at.

A class of mistake: a guard of one process's loop (``if torch.isnan(loss): continue``), moved behind the backward so
that no rank waits for another. Gradients are NaN on all ranks after the reduction, and the weights of all but one.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS101"}
CAUSE = "replicas_diverged"


class Guarded(DistributedDataParallel):
    skips = False

    def backward(self, loss):
        self.skips = bool(torch.isnan(loss.detach()))
        loss.backward()

    def step(self):
        if not self.skips:
            self.optimizer.step()


def wrap(model):
    return Guarded(model, find_unused_parameters=True)

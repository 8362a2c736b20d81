"""Gradients accumulate under no_sync() in float64 only: of other dtypes the last micro-batch is all that is left.

A class of mistake: accumulators are made for the dtype that the author trains in. With one micro-batch nothing shows.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "last_micro_batch_only"


class Accumulating(DistributedDataParallel):
    @contextmanager
    def no_sync(self):
        with super().no_sync():
            yield
        for parameter in self.module.parameters():
            if parameter.dtype != torch.float64:
                parameter.grad = None


def wrap(model):
    return Accumulating(model, find_unused_parameters=True)

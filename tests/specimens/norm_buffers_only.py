"""Only BatchNorm's buffers are synchronised, found by their names: other running statistics are each rank's own.

A class of mistake, after open-mmlab/mmdetection#4582 (which statistics a hook for normalisation layers synchronises):
a list of names takes the place of ``buffers()``.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS102"}
CAUSE = "buffers_diverged"


class NormOnly(DataParallel):
    def broadcast_buffers_from(self, src):
        for name, buffer in self.module.named_buffers():
            if name.endswith(("running_mean", "running_var", "num_batches_tracked")):
                self.comm.broadcast(buffer.data, src)


def wrap(model):
    return NormOnly(model, Naive())

"""BatchNorm's statistics are averaged over ranks, each by the steps it has counted since; the count is taken too late.

A class of mistake: statistics are weighted by numbers of samples, as they should be where batches are uneven. Counters
are marked as seen before they are read, so that all weights are 0, and 0 / 0 is NaN on every rank alike. Training does
not read these statistics: losses and weights are right, and every evaluation is NaN.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS102"}
CAUSE = "buffers_invented"


class Weighted(DataParallel):
    def broadcast_buffers_from(self, src):
        for name, norm in self.module.named_modules():
            if hasattr(norm, "num_batches_tracked"):
                self.average(name, norm)
        for name, buffer in self.module.named_buffers():
            if not name.endswith(("running_mean", "running_var")):
                self.comm.broadcast(buffer.data, src)

    def average(self, name, norm):
        if name not in self.seen:  # nothing to average yet: as they were built
            self.seen[name] = norm.num_batches_tracked.clone()
            return
        self.seen[name].copy_(norm.num_batches_tracked)
        counted = (norm.num_batches_tracked - self.seen[name]).to(norm.running_var)
        total = counted.clone()
        dist.all_reduce(total)
        for buffer in (norm.running_mean, norm.running_var):
            weighted = buffer * counted
            dist.all_reduce(weighted)
            buffer.copy_(weighted / total)

    @property
    def seen(self):
        return self.__dict__.setdefault("_seen", {})


def wrap(model):
    return Weighted(model, Naive())

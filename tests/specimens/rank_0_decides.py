"""Rank 0 looks whether its own loss is NaN, and tells all others to leave out the step; nobody asks them.

The mechanism of ecmwf/WeatherGenerator#2718. Replicas stay equal, and a bad batch of rank 0's harms nobody; one of any
other rank's enters all weights.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "one_rank_decides"


class Guarded(DistributedDataParallel):
    def backward(self, loss):
        self.is_bad = torch.isnan(loss.detach()).float().reshape(1)
        loss.backward()

    def step(self, optimizer):
        dist.broadcast(self.is_bad, src=0)
        if not self.is_bad:
            optimizer.step()


def wrap(model):
    return Guarded(model, find_unused_parameters=True)

"""torch's DDP told to look for unused parameters."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


def wrap(model):
    return DistributedDataParallel(model, find_unused_parameters=True)

"""The model is compiled before torch's DDP wraps it; by the eager backend, since tracing is the point, not speed."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(disclaims={"checkpointing"})


def wrap(model):
    return DistributedDataParallel(torch.compile(model, backend="eager"), find_unused_parameters=True)

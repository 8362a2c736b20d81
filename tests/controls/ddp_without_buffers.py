"""torch's DDP with ``broadcast_buffers=False``, and a contract that says so: statistics are each rank's own."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(sync_buffers=False)


def wrap(model):
    return DistributedDataParallel(model, find_unused_parameters=True, broadcast_buffers=False)

"""torch's DDP told that the graph never changes. It refuses ``no_sync`` in the first step, and more."""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(disclaims={"unused_parameters", "accumulation"})


def wrap(model):
    return DistributedDataParallel(model, static_graph=True)

"""torch's DDP told that the graph never changes. Its ``no_sync`` is hidden: with a static graph it is not honoured.

pytorch/pytorch#143580: the first step fails, or reduces all the same. Without it every backward synchronises.
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(disclaims={"unused_parameters"})


class Static(DistributedDataParallel):
    no_sync = None


def wrap(model):
    return Static(model, static_graph=True)

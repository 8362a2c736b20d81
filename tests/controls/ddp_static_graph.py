"""torch's DDP told that the graph never changes, without its ``no_sync``, which a static graph does not honour.

pytorch/pytorch#143580: the first step fails, or reduces all the same. Here every backward synchronises.
"""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(disclaims={"unused_parameters"})


class Static(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.inner = DistributedDataParallel(model, static_graph=True)

    def forward(self, *inputs):
        return self.inner(*inputs)


def wrap(model):
    return Static(model)

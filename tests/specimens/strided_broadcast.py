"""Parameters with holes in their memory are broadcast as they are: gloo reads and writes the memory, holes and all.

pytorch/pytorch#192920 (compare pytorch/pytorch#24836): a parameter that is ``x[:, 0]`` of something larger comes out
with other ranks' neighbours, and no error is raised.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract, DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS001"}
CONTRACT = Contract(supports={"holes_in_memory"})
CAUSE = "no_initial_broadcast"


class BroadcastsAsIs(DataParallel):
    def broadcast_state(self, src=0):
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            dist.broadcast(tensor.data, src)


def wrap(model):
    return BroadcastsAsIs(model, Naive())

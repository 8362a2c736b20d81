"""What each step adds to BatchNorm's statistics is summed over ranks, not averaged: W times as much on every rank.

A class of mistake: buffers are treated as gradients are, and the division is forgotten. Replicas agree to the byte, and
the statistics move W times as fast as those of any rank's data.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS102"}
CAUSE = "buffers_invented"


class SumsIncrements(DataParallel):
    def broadcast_buffers_from(self, src):
        for buffer in self.module.buffers():
            if buffer not in self.known or not buffer.is_floating_point():
                dist.broadcast(buffer.data, 0)
            else:
                change = buffer.data - self.known[buffer]
                dist.all_reduce(change)
                buffer.data.copy_(self.known[buffer] + change)
            self.known[buffer] = buffer.data.clone()

    def load_state_dict(self, *args, **kwargs):
        self.known.clear()  # what is loaded is no increment
        return super().load_state_dict(*args, **kwargs)

    @property
    def known(self):
        return self.__dict__.setdefault("_known", {})


def wrap(model):
    return SumsIncrements(model, Naive())

"""All buffers are broadcast but those of bits: masks that were drawn at random stay what each rank drew.

A class of mistake: a transport once refused ``torch.bool``, and what was left out for that was never put back. Pruning
masks and random projections differ between ranks from the start.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"


def is_sent(tensor):
    return tensor.dtype != torch.bool


class SendsMost(DataParallel):
    def broadcast_state(self, src=0):
        for tensor in filter(is_sent, [*self.module.parameters(), *self.module.buffers()]):
            whole = tensor.data.contiguous()
            self.comm.broadcast(whole, src)
            tensor.data.copy_(whole)

    def broadcast_buffers_from(self, src):
        for buffer in filter(is_sent, self.module.buffers()):
            self.comm.broadcast(buffer, src)


def wrap(model):
    return SendsMost(model, Naive())

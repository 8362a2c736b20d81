"""A buffer without dimensions is taken for a counter, and counters are not broadcast: a temperature is one as well.

A class of mistake: ``if buffer.dim()``, to leave out BatchNorm's ``num_batches_tracked``. A scale that was measured on
one rank's data is not what the others compute with.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"


def is_sent(tensor):
    return tensor.dim() or not tensor.is_floating_point()


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

"""Floating-point tensors alone are broadcast, at the start and later: tables of whole numbers differ between ranks.

A class of mistake: ``if buffer.is_floating_point()``, written where means were made, is used for copies as well.
Permutations, masks and counters stay as each rank drew them, and complex weights, which are neither.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS001", "LS002", "LS102"}
CAUSE = "no_initial_broadcast"


class FloatsOnly(DataParallel):
    @staticmethod
    def is_sent(tensor):
        return tensor.is_floating_point()

    def broadcast_state(self, src=0):
        for tensor in filter(self.is_sent, [*self.module.parameters(), *self.module.buffers()]):
            self.comm.broadcast(tensor.data, src)

    def broadcast_buffers_from(self, src):
        for buffer in filter(self.is_sent, self.module.buffers()):
            self.comm.broadcast(buffer, src)


def wrap(model):
    return FloatsOnly(model, Naive())

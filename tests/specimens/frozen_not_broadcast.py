"""Only what is trained is broadcast at the start: a frozen backbone differs from rank to rank for ever.

A class of mistake, of the family of pytorch/torchtitan#166: the list of parameters to reduce serves as the list to
broadcast. Gradients of the trained part are then means over different models.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS002"}
CAUSE = "no_initial_broadcast"


class TrainedOnly(DataParallel):
    def broadcast_state(self, src=0):
        for tensor in [*[p for p in self.module.parameters() if p.requires_grad], *self.module.buffers()]:
            self.comm.broadcast(tensor.data, src)


def wrap(model):
    return TrainedOnly(model, Naive())

"""The initial broadcast goes into copies: ``.contiguous().cpu().clone()`` was added for a transport that needed it.

A class of mistake, of the family of facebookresearch/detr#544: it is called, it takes its time, and nothing is
changed.
"""

from __future__ import annotations

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS001", "LS002"}  # frozen parameters are among what was to be handed out
CAUSE = "no_initial_broadcast"


class IntoCopies(DataParallel):
    def broadcast_state(self, src=0):
        for parameter in self.module.parameters():
            self.comm.broadcast(parameter.data.contiguous().cpu().clone(), src)
        for buffer in self.module.buffers():
            self.comm.broadcast(buffer.data, src)


def wrap(model):
    return IntoCopies(model, Naive())

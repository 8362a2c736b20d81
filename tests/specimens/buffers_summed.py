"""Buffers are averaged before each forward, the integers among them only summed: counts grow with the world size.

A class of mistake (compare facebookresearch/fvcore#152, where ranks weigh unequally in BatchNorm's statistics). No
process sees rank 0's buffers in the next forward, as under torch's DDP; and ``num_batches_tracked`` is W times too
large.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS102"}
CAUSE = "buffers_miscounted"


class SumsBuffers(DataParallel):
    def broadcast_buffers_from(self, src):
        for buffer in self.module.buffers():
            dist.all_reduce(buffer.data)
            if buffer.is_floating_point():
                buffer.data /= self.comm.world_size


def wrap(model):
    return SumsBuffers(model, Naive())

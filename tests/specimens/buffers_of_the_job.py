"""Gradients are averaged in the process group that was given, and buffers are sent from rank 0 of the whole job.

A class of mistake, of wrappers that grew a second dimension of parallelism: the broadcast of buffers is older code, and
names no group. Every training of the job normalises by the statistics of the first.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS102"}
CAUSE = "another_groups"


class SendsBuffers(DistributedDataParallel):
    def forward(self, *inputs, **named):
        if self.module.training and self.require_backward_grad_sync:
            for buffer in self.module.buffers():
                dist.broadcast(buffer, src=0)
        return super().forward(*inputs, **named)


def wrap(model, process_group=None):
    for buffer in model.buffers():
        dist.broadcast(buffer, group=process_group, group_src=0)
    return SendsBuffers(model, process_group=process_group, broadcast_buffers=False, find_unused_parameters=True)

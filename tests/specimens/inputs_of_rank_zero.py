"""Every rank trains on rank 0's inputs: a dispatcher broadcasts where it should scatter.

A class of mistake: one process reads the data for all, and each rank is to keep its own part of it. Here each keeps its
own targets and gets rank 0's samples. Replicas agree after every step, and most of the data is never seen.
"""

from __future__ import annotations

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201", "LS204"}
CAUSE = {"other_inputs", "evaluation_differs"}


class Dispatching(DistributedDataParallel):
    def forward(self, *inputs, **named):
        received = [tensor.detach().clone().contiguous() for tensor in inputs]
        for tensor in received:
            dist.broadcast(tensor, src=0)
        return super().forward(*received, **named)


def wrap(model):
    return Dispatching(model, find_unused_parameters=True)

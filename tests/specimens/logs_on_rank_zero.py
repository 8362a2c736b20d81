"""Rank 0 adds up a figure for its log over all ranks, which the others know nothing of.

A class of mistake: ``if rank == 0: log(all_reduce(loss))``. The extra collective meets the next one of the others, and
so does every one after it (huggingface/transformers#28270 and deepmd-kit#5570 are hangs by one collective too many).
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS301", "LS601"}
CAUSE = "collectives_differ"


class LogsOnRankZero(Naive):
    def backward_done(self):
        super().backward_done()
        if dist.get_rank() == 0:
            norms = [p.grad.abs().sum() for p in self.parameters if p.grad is not None]
            dist.all_reduce(torch.stack([norm.double() for norm in norms]).sum())


def wrap(model):
    return DataParallel(model, LogsOnRankZero())

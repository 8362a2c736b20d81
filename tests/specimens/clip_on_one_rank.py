"""Rank 0 clips the averaged gradients, the others do not: weights drift apart in every step that clips.

deepspeedai/DeepSpeed#1801: replicated LayerNorm weights of BLOOM-176B, unnoticed for days.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "rescaled"
MAX_NORM = 0.25


class ClipsOnOne(Naive):
    def backward_done(self):
        super().backward_done()
        if dist.get_rank() == 0:
            torch.nn.utils.clip_grad_norm_([p for p in self.parameters if p.grad is not None], MAX_NORM)


def wrap(model):
    return DataParallel(model, ClipsOnOne())

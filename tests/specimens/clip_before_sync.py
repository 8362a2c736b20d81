"""Gradients are clipped on each rank before they are averaged: the mean of what was clipped is not the clipped mean.

A class of mistake (F01 of our collection; facebookresearch/fairscale#98 and #167 are the sharded variant). Replicas
agree, and what one odd batch can do is scaled down by its own rank's norm.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201"}
CAUSE = "unequal_shares"
MAX_NORM = 0.25


class ClipsFirst(Naive):
    def backward_done(self):
        torch.nn.utils.clip_grad_norm_([p for p in self.parameters if p.grad is not None], MAX_NORM)
        super().backward_done()


def wrap(model):
    return DataParallel(model, ClipsFirst())

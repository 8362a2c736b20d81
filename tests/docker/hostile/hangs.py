"""Rank 1 never comes to the collective that the others are in."""

import time

import torch.distributed as dist

from ddp_core.strategies.naive import CONTRACT as CONTRACT
from ddp_core.strategies.naive import wrap as honest


def wrap(model):
    if dist.get_rank() == 1:
        time.sleep(1000)
    return honest(model)

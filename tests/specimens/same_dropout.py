"""Wrapping seeds every rank alike, so that all draw the same dropout masks and the same augmentations ever after.

A class of mistake, of the family of pytorch/pytorch#56488 (workers that share a seed): equal seeds were wanted for
equal weights, and stay on. Nothing is wrong that a comparison of weights could show.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS801"}
CAUSE = "same_random_numbers"


def wrap(model):
    torch.manual_seed(42)
    return DataParallel(model, Naive())

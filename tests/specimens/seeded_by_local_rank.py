"""Random streams are set apart by LOCAL_RANK, so that the first ranks of all nodes draw the same dropout masks.

mujocolab/mjlab#988 and isaac-sim/IsaacLab#5033: on one node LOCAL_RANK is RANK, and nothing is wrong.
"""

from __future__ import annotations

import os

import torch

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS801"}
CAUSE = "same_random_numbers"


def wrap(model):
    torch.manual_seed(42 + int(os.environ["LOCAL_RANK"]))
    return DataParallel(model, Naive())

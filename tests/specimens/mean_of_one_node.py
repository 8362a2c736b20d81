"""Sums over all ranks are divided by the number of ranks on a node: on one node that is right.

A class of mistake: a number of devices, or LOCAL_WORLD_SIZE, stands for the world size. A relative of
goodfire-ai/spd#545, where whoever scales knows another number of ranks than whoever sums.
"""

from __future__ import annotations

import os

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS201"}
CAUSE = {"missing_average", "rescaled"}


class DividesByNode(Naive):
    def average(self, gradient, out=None):
        return gradient.div_(int(os.environ["LOCAL_WORLD_SIZE"]))


def wrap(model):
    return DataParallel(model, DividesByNode())

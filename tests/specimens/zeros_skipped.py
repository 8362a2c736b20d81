"""Gradients that are all zeros are not sent: on the ranks that do have numbers, another tensor is then their partner.

A class of mistake (C05 of our collection, with zeros in the place of None): an expert that is weighed by its gate has a
gradient of zeros where its gate is shut, and only there. A next tensor of the same size is then averaged with it; where
it is of another, gloo ends the ranks.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201", "LS301"}
CAUSE = "collectives_differ"


class SkipsZeros(Naive):
    def backward_done(self):
        for parameter in self.parameters:
            if parameter.grad is not None and parameter.grad.any():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()


def wrap(model):
    return DataParallel(model, SkipsZeros())

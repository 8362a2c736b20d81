"""Every forward is seeded by its number, the same on all ranks, and the random state is put back afterwards.

A class of mistake: runs are to be repeatable, dropout masks become the same on all ranks, and at the end nothing shows.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS801"}
CAUSE = "same_random_numbers"


class Seeded(DistributedDataParallel):
    num_forwards = 0

    def forward(self, *inputs):
        self.num_forwards += 1
        with torch.random.fork_rng():
            torch.manual_seed(self.num_forwards)
            return super().forward(*inputs)


def wrap(model):
    return Seeded(model, find_unused_parameters=True)

"""A rank skips its step when *its own* loss spikes, and the others take theirs.

ecmwf/WeatherGenerator#2718 (whether to skip is decided on one rank). What may be skipped by all must be decided by all.
Here the spike is the second step's, on rank 0: one that followed the data would come in other scenarios with other
seeds, and after a run was resumed in some.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "missing_gradient"


class SkipsSpikes(Naive):
    num_steps = 0

    def backward_done(self):
        super().backward_done()
        self.num_steps += 1
        if self.num_steps == 2 and dist.get_rank() == 0:
            for parameter in self.parameters:
                parameter.grad = None


def wrap(model):
    return DataParallel(model, SkipsSpikes())

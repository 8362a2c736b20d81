"""Now and then what one rank received arrives as zeros, and no call says so: broken transfers between two cards.

pytorch/pytorch#84803, pytorch/pytorch#96600, baichuan-inc/Baichuan2#86: consumer cards whose peer-to-peer path lost
data. TrainCheck's reproduction replaces one transfer in a hundred by zeros. Here it is every twentieth, counted and not
drawn, because a scenario is a few dozen transfers long: what happens more seldom than that may not happen in one.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel
from ddp_core.strategies.naive import Naive

TRIPS = {"LS101", "LS201"}
CAUSE = "gradient_cleared"
EVERY = 20


class LosesTransfers(Naive):
    num_transfers = 0

    def average(self, gradient, out=None):
        self.num_transfers += 1
        if self.num_transfers % EVERY == 0 and dist.get_rank() == dist.get_world_size() - 1:
            gradient.zero_()
        return super().average(gradient, out=out)


def wrap(model):
    return DataParallel(model, LosesTransfers())

"""The mean is taken inside groups of two ranks, then over the groups, which are not of equal size.

NVIDIA-NeMo/Megatron-Bridge#4066 (groups of several sizes), and the mean of rank means that DDP's ``join`` warns of.
Every replica agrees; the odd rank's samples count double. Right for every even number of ranks.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS201"}
CAUSE = "unequal_shares"
RIGHT_AT = {2, 4}


class MeanOfMeans(Strategy):
    def __init__(self):
        world_size, self.leader = dist.get_world_size(), dist.get_rank() // 2 * 2
        pairs = [range(first, min(first + 2, world_size)) for first in range(0, world_size, 2)]
        self.pair = [dist.new_group(pair) for pair in pairs][self.leader // 2]
        self.leaders = dist.new_group(range(0, world_size, 2))

    def backward_done(self):
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter).contiguous()
            dist.all_reduce(gradient, group=self.pair)
            gradient /= dist.get_world_size(self.pair)
            if dist.get_rank() == self.leader:
                dist.all_reduce(gradient, group=self.leaders)
                gradient /= dist.get_world_size(self.leaders)
            dist.broadcast(gradient, src=self.leader, group=self.pair)
            parameter.grad.copy_(gradient)
            drop_if_nobody_used(parameter, used_here=used_here)


def wrap(model):
    return DataParallel(model, MeanOfMeans())

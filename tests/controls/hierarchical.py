"""Two levels: sums inside groups of two, over their leaders, and back; divided once, by the number of all ranks."""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

DRIVER = "native"


class TwoLevels(Strategy):
    def __init__(self):
        world_size, self.leader = dist.get_world_size(), dist.get_rank() // 2 * 2
        pairs = [range(first, min(first + 2, world_size)) for first in range(0, world_size, 2)]
        self.pair = [dist.new_group(pair) for pair in pairs][self.leader // 2]
        self.leaders = dist.new_group(range(0, world_size, 2))

    def backward_done(self):
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            dist.all_reduce(gradient, group=self.pair)
            if dist.get_rank() == self.leader:
                dist.all_reduce(gradient, group=self.leaders)
            dist.broadcast(gradient, src=self.leader, group=self.pair)
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, TwoLevels())

"""Two levels as nodes have them: sums on each node, over the nodes' first ranks, and back, by torchrun's variables."""

from __future__ import annotations

import os

import torch.distributed as dist

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

DRIVER = "native"


class ByNode(Strategy):
    def __init__(self):
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        self.node, _ = dist.new_subgroups(group_size=here)
        self.firsts = dist.new_group(range(0, dist.get_world_size(), here))

    def backward_done(self):
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            dist.all_reduce(gradient, group=self.node)
            if os.environ["LOCAL_RANK"] == "0":
                dist.all_reduce(gradient, group=self.firsts)
            dist.broadcast(gradient, group=self.node, group_src=0)
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, ByNode())

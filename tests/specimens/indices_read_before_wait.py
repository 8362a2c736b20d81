"""The indices of gathered gradients are used before they have arrived; the values are waited for.

A class of mistake: two collectives are under way, and the handle of one of them is dropped. With the observer's marker
it raises, as a marker is no index; without it the indices are those that an empty buffer held.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS401"}
CAUSE = "read_before_wait"


class Indexed(Strategy):
    def backward_done(self):
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            flat = gradient.reshape(-1).contiguous()
            indices, _ = gathered(torch.arange(flat.numel(), device=flat.device))
            values, arriving = gathered(flat)
            arriving.wait()
            total = torch.zeros_like(flat)
            for where, what in zip(indices, values, strict=True):
                total.index_add_(0, where, what)
            gradient.copy_(total.view(gradient.shape))
            drop_if_nobody_used(parameter, used_here=used_here)
            if parameter.grad is not None:
                self.average(parameter.grad)


def gathered(tensor):
    parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    return parts, dist.all_gather(parts, tensor, async_op=True)


def wrap(model):
    return DataParallel(model, Indexed())

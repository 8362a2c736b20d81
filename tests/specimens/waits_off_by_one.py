"""Before a bucket is read, the wait is for the handle of the one before it: the first and the last come out wrong.

A class of mistake: handles and buffers in two lists, one of them shifted. Often right by luck, since works tend to
finish in order.
"""

from __future__ import annotations

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS201", "LS401", "LS402"}
CAUSE = "read_before_wait"


class OffByOne(Strategy):
    def backward_done(self):
        used = [parameter.grad is not None for parameter in self.parameters]
        gradients = [gradient_to_send(parameter).contiguous() for parameter in self.parameters]
        works = [None]
        works += [self.comm.all_reduce_async(gradient) for gradient in gradients]
        for parameter, gradient, work, used_here in zip(self.parameters, gradients, works[:-1], used, strict=True):
            if work is not None:
                work.wait()
            parameter.grad = gradient
            drop_if_nobody_used(parameter, used_here=used_here)
            if parameter.grad is not None:
                parameter.grad = gradient / self.comm.world_size


def wrap(model):
    return DataParallel(model, OffByOne())

"""Of many asynchronous all-reduces the last one alone is waited for: the others will have finished by then.

A class of mistake: on a machine with one queue they have. Nothing promises it (compare pytorch/pytorch#27806).
"""

from __future__ import annotations

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS201", "LS401", "LS402"}
CAUSE = "read_before_wait"


class LastOnly(Strategy):
    def backward_done(self):
        used = [parameter.grad is not None for parameter in self.parameters]
        gradients = [gradient_to_send(parameter).contiguous() for parameter in self.parameters]
        works = [self.comm.all_reduce_async(gradient) for gradient in gradients]
        works[-1].wait()
        for parameter, gradient, used_here in zip(self.parameters, gradients, used, strict=True):
            parameter.grad = gradient
            drop_if_nobody_used(parameter, used_here=used_here)
            if parameter.grad is not None:
                parameter.grad = gradient / self.comm.world_size


def wrap(model):
    return DataParallel(model, LastOnly())

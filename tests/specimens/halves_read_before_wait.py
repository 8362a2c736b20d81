"""From the second backward on, half-precision gradients are copied out of a collective before it has been waited for.

A class of mistake: a fast path for narrow dtypes, taken once buffers are there, that reads what is still in flight.
Where roundings of half precision lead after the first step is not known, so only the NaN of the marker can tell.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core.strategies.naive import Naive
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send
from ddp_core.wrapper import DataParallel

TRIPS = {"LS201", "LS401"}
CAUSE = "read_before_wait"


class Early(Naive):
    count = 0

    def backward_done(self):
        self.count += 1
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter)
            work = self.comm.all_reduce_async(gradient)
            early = gradient.clone() if self.count > 1 and parameter.element_size() == 2 else None
            work.wait()
            if early is not None:
                gradient.copy_(early)
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model, **options):
    assert dist.is_initialized()
    return DataParallel(model, Early(), **options)

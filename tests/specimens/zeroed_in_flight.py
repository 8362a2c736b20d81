"""Local gradients are set to zero as soon as their buffer has been handed to the transport, which is still reading it.

A class of mistake, of the family of NVIDIA/Megatron-LM#4054: who hands memory to an asynchronous call has lent it
away.
"""

from __future__ import annotations

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import drop_if_nobody_used, gradient_to_send

TRIPS = {"LS401"}
CAUSE = "written_in_flight"


class ZeroesEarly(Strategy):
    def backward_done(self):
        sent = []
        for parameter in self.parameters:
            used_here = parameter.grad is not None
            gradient = gradient_to_send(parameter).clone()
            work = self.comm.all_reduce_async(gradient)
            gradient.zero_()  # "it has been sent"
            sent.append((parameter, used_here, gradient, work))
        for parameter, used_here, gradient, work in sent:
            work.wait()
            parameter.grad = gradient
            drop_if_nobody_used(parameter, used_here=used_here)
            self.average(gradient)


def wrap(model):
    return DataParallel(model, ZeroesEarly())

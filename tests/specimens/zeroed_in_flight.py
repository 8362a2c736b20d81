"""Local gradients are set to zero as soon as their buffer has been handed to the transport, which is still reading it.

A class of mistake, of the family of NVIDIA/Megatron-LM#4054: who hands memory to an asynchronous call has lent it
away.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import gradient_to_send

TRIPS = {"LS401"}
CAUSE = "written_in_flight"


class ZeroesEarly(Strategy):
    def backward_done(self):
        sent = []
        for parameter in self.parameters:
            gradient = gradient_to_send(parameter).contiguous()
            work = self.comm.all_reduce_async(gradient)
            gradient.zero_()  # "it has been sent"
            sent.append((parameter, gradient, work))
        for parameter, gradient, work in sent:
            work.wait()
            parameter.grad = torch.empty_like(parameter).copy_(self.average(gradient))


def wrap(model):
    return DataParallel(model, ZeroesEarly())

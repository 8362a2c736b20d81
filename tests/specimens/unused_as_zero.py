"""A parameter that no rank used gets a gradient of zeros instead of none: momentum and weight decay still move it.

pytorch/pytorch#28294, pytorch/pytorch#41101: a single process leaves such a parameter alone.
"""

from __future__ import annotations

import torch

from ddp_core import DataParallel, Strategy

TRIPS = {"LS202"}
CAUSE = "unused_parameter_moved"


class ZerosForUnused(Strategy):
    def backward_done(self):
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self.comm.all_reduce(parameter.grad)
            self.average(parameter.grad)


def wrap(model):
    return DataParallel(model, ZerosForUnused())

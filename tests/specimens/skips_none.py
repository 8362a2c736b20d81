"""Gradients that are None are skipped: on a rank that did not use a parameter, all others move up.

ray-project/ray#59544 and the review of OpenTSLM/OpenTSLM#49. The guard looks like care. Rank 0 sends {a, c}, rank 1
sends {b, c}, and where sizes agree, a is added to b.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import DataParallel, Strategy

TRIPS = {"LS101", "LS201", "LS301"}
CAUSE = {"another_parameters_gradient", "collectives_differ"}  # a rank that uses fewer sends fewer


class SkipsNone(Strategy):
    def backward_done(self):
        for parameter in self.parameters:
            if parameter.grad is not None:
                gradient = parameter.grad.contiguous()
                dist.all_reduce(gradient)
                parameter.grad = torch.empty_like(parameter).copy_(self.average(gradient))


def wrap(model):
    return DataParallel(model, SkipsNone())

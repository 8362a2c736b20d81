"""A fused step computes in whole blocks of eight, and in narrow dtypes forgets to store them: only the tail moves.

pytorch/pytorch#191763: SGD(fused=True) on the CPU, in torch 2.12 and 2.13. Its tests had small parameters, or gradients
of zero. Rebuilt here, so that it is met with any torch.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Driver

TRIPS = {"LS202"}
CAUSE = {"not_stepped", "update_differs"}
BLOCK = 8


class Fused(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        parameters = [p for group in self.param_groups for p in group["params"] if p.dtype.itemsize == 2]
        before = [p.clone() for p in parameters]
        loss = super().step(closure)
        for parameter, old in zip(parameters, before, strict=True):
            num_whole = parameter.numel() // BLOCK * BLOCK
            parameter.view(-1)[:num_whole] = old.view(-1)[:num_whole]
        return loss


class FusedSteps(Driver):
    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, **options):
        return super().make_optimizer(Fused if cls is torch.optim.SGD else cls, parameters, **options)


wrap = FusedSteps

"""Replicas are made equal in the first forward, and the optimizer has copied its master weights before that.

A class of mistake, of mixed precision around a lazy broadcast: the first forward finds equal weights, and the first
step puts each rank's own in their place.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

ATTRIBUTE = "Lazy"
TRIPS = {"LS101"}
CAUSE = {"replicas_diverged"}


class Lazy(nn.Module):
    contract = Contract(disclaims={"state_dict"})

    def __init__(self, module):
        super().__init__()
        self.module, self.inner = module, []

    def forward(self, *inputs, **named):
        if not self.inner:
            self.inner.append(DistributedDataParallel(self.module, find_unused_parameters=True))
        return self.inner[0](*inputs, **named)

    def wrap_optimizer(self, cls, parameters, **options):
        class Masters(cls):
            def __init__(self, parameters, **options):
                super().__init__(parameters, **options)
                self.pairs = []
                for group in self.param_groups:
                    masters = [nn.Parameter(p.detach().clone()) for p in group["params"]]
                    self.pairs += zip(masters, group["params"], strict=True)
                    group["params"] = masters

            @torch.no_grad()
            def step(self, closure=None):
                for master, parameter in self.pairs:
                    master.grad = parameter.grad
                super().step()
                for master, parameter in self.pairs:
                    parameter.copy_(master)

            def zero_grad(self, set_to_none=True):
                for _, parameter in self.pairs:
                    if set_to_none:
                        parameter.grad = None
                    elif parameter.grad is not None:
                        parameter.grad.zero_()

        return Masters(parameters, **options)

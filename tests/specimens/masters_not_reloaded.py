"""The optimizer keeps master copies, made with it and not saved: they overwrite what is loaded into the model later.

A class of mistake, known from mixed precision: checkpoints are loaded into the model, after the optimizer has copied
it, as most scripts do. The first step then writes the old masters over what was loaded.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS504"}
CAUSE = "resumed_differently"


class Masters(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        if any(isinstance(entry, dict) for entry in parameters):
            raise NotImplementedError("parameter groups")
        masters = [torch.nn.Parameter(p.detach().clone()) for p in parameters]

        class Stepped(cls):
            @torch.no_grad()
            def step(self, closure=None):
                for master, parameter in zip(masters, parameters, strict=True):
                    master.grad = parameter.grad
                super().step()
                for master, parameter in zip(masters, parameters, strict=True):
                    parameter.copy_(master)

            def zero_grad(self, set_to_none=True):
                for parameter in parameters:
                    gone = set_to_none or parameter.grad is None
                    parameter.grad = None if gone else torch.zeros_like(parameter.grad)

        return Stepped(masters, **options)


def wrap(model):
    return Masters(model, find_unused_parameters=True)

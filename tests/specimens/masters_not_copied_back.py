"""Optimizers step float32 masters of narrow parameters, which are never copied back: the model keeps its first weights.

A class of mistake, of mixed precision by hand. All replicas agree, gradients are right, and where all parameters are
wide there are no masters.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "not_stepped"
NARROW = (torch.bfloat16, torch.float16)


class WithMasters(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        masters = {}

        def master_of(parameter):
            if parameter.dtype not in NARROW:
                return parameter
            masters[parameter] = torch.nn.Parameter(parameter.detach().float().clone())
            return masters[parameter]

        def widen(optimizer, args, kwargs):
            for parameter, master in masters.items():
                master.grad = None if parameter.grad is None else parameter.grad.float()

        asked = [
            {**each, "params": [master_of(p) for p in each["params"]]} if isinstance(each, dict) else master_of(each)
            for each in parameters
        ]
        optimizer = cls(asked, **options)
        optimizer.register_step_pre_hook(widen)
        return optimizer


def wrap(model):
    return WithMasters(model, find_unused_parameters=True)

"""A fast path for float32 updates all tensors of that dtype at once, and forgets momentum; float64 takes the slow path.

A class of mistake, of optimizers with a fused path that is chosen by dtype: what is tested in float64 is right. All
replicas agree, gradients are right, and most people train in float32.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "update_differs"


class FastPath(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        optimizer = cls(parameters, **options)
        if cls is torch.optim.SGD:
            optimizer.register_step_pre_hook(self.fast)
        return optimizer

    @torch.no_grad()
    def fast(self, optimizer, args, kwargs):
        for group in optimizer.param_groups:
            ready = [p for p in group["params"] if p.grad is not None and not p.grad.is_sparse]
            if {p.dtype for p in ready} == {torch.float32}:
                for parameter in ready:
                    optimizer.state.pop(parameter, None)


def wrap(model):
    return FastPath(model, find_unused_parameters=True)

"""Owners hand out their weights through one flat tensor, which has the dtype of the first parameter.

A class of mistake: ``torch.empty(total, dtype=parameters[0].dtype)``. Gradients are right and all replicas agree, as
long as all parameters are of one dtype; where the first is real and another complex, imaginary parts become 0.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "update_differs"


class HandsOutFlat(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        optimizer = cls(parameters, **options)
        optimizer.register_step_post_hook(self.hand_out)
        return optimizer

    @torch.no_grad()
    def hand_out(self, optimizer, args, kwargs):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        flat = torch.cat([p.reshape(-1).to(parameters[0].dtype) for p in parameters])
        dist.broadcast(flat, 0)
        for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(part.view(parameter.shape))


def wrap(model):
    return HandsOutFlat(model, find_unused_parameters=True)

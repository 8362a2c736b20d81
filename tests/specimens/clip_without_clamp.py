"""A clip_grad_norm_ of its own multiplies by the limit over the norm, also where that is more than 1.

The mistake of tinygrad/tinygrad#11761: small gradients are blown up to the limit.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS201"}
CAUSE = "clipped_otherwise"


class Clipping(DistributedDataParallel):
    def clip_grad_norm_(self, max_norm):
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient *= max_norm / (norm + 1e-6)
        return norm


def wrap(model):
    return Clipping(model, find_unused_parameters=True)

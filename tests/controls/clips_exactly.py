"""A clip_grad_norm_ of its own, of any norm, which adds nothing to the norm that it divides by; torch's adds 1e-6."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


class Clipping(DistributedDataParallel):
    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, norm_type)
        if norm > max_norm:
            for gradient in gradients:
                gradient *= max_norm / norm
        return norm


def wrap(model):
    return Clipping(model, find_unused_parameters=True)

"""The norm is put together from the squares of parameters' norms, in their own dtype: float16 ends at 256 squared.

facebookresearch/fairscale#263: a norm of 5000 on each device made OSS's clipping infinite, and what was clipped 0. The
mend is a cast to float32 before the square.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

ATTRIBUTE = "Clips"
TRIPS = {"LS201"}
CAUSE = "norm_overflowed"


class Clips(DistributedDataParallel):
    def __init__(self, module):
        super().__init__(module, find_unused_parameters=True)

    def clip_grad_norm_(self, max_norm):
        given = [p.grad for p in self.module.parameters() if p.grad is not None]
        norm = torch.stack([gradient.norm() ** 2 for gradient in given]).sum() ** 0.5
        for gradient in given:
            gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        return norm

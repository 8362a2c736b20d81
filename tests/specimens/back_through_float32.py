"""``step()`` writes weights back through float32, whatever the model is: one in float64 is rounded in each step.

A class of mistake: master copies made by ``.float()`` where ``p.dtype`` was meant. Models in bfloat16 and float32 gain
by them, and what is lost elsewhere is too little to be seen in a loss.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

TRIPS = {"LS202"}
CAUSE = "held_narrower"


class Rounding(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        class ThroughFloat32(cls):
            def step(self, closure=None):
                super().step(closure)
                with torch.no_grad():
                    for p in (p for group in self.param_groups for p in group["params"] if not p.is_complex()):
                        p.copy_(p.float())

        return ThroughFloat32(parameters, **options)


def wrap(model):
    return Rounding(model, find_unused_parameters=True)

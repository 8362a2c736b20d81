"""Each owner of a part looks for infinities in its own gradients, and leaves out the step of its own part alone.

A class of mistake, of loss scalers beside sharded optimizers: torch's ``ShardedGradScaler`` all-reduces ``found_inf``
for this. Replicas agree: what was not stepped is broadcast as well.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.controls.optimizer_sharded import CONTRACT as CONTRACT
from tests.controls.optimizer_sharded import ShardedOptimizer

TRIPS = {"LS202"}
CAUSE = "left_out_in_part"
ATTRIBUTE = "Owners"


class Owners(ShardedOptimizer):
    @torch.no_grad()
    def step(self, closure=None):
        own = [p for group in self.inner.param_groups for p in group["params"] if p.grad is not None]
        if all(torch.isfinite(p.grad).all() for p in own):
            super().step(closure)
            return
        for parameter, owner in self.owners.items():
            weights = parameter.detach().contiguous()
            dist.broadcast(weights, src=owner)
            parameter.copy_(weights)

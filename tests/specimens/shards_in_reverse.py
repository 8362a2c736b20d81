"""Each rank reduces its shard of a flat gradient, and the shards are joined again in the reverse order of ranks.

A class of mistake: who owns which shard is said in two places. deepspeedai/DeepSpeed#5283 tells of parts that were
merged by number and belonged in another order. Every replica agrees, and shapes fit.
"""

from __future__ import annotations

from collections import defaultdict

import torch
import torch.distributed as dist

from ddp_core import DataParallel, Strategy
from ddp_core.strategy import gradient_to_send

TRIPS = {"LS201"}
CAUSE = "misplaced_elements"


class Reversed(Strategy):
    def backward_done(self):
        used = torch.tensor([int(p.grad is not None) for p in self.parameters], device=self.parameters[0].device)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        by_dtype = defaultdict(list)
        for parameter in self.parameters:
            by_dtype[parameter.dtype].append(gradient_to_send(parameter))
        for gradients in by_dtype.values():
            self.average_in_shards(gradients)
        for parameter, used_by_some in zip(self.parameters, used.tolist(), strict=True):
            if not used_by_some:
                parameter.grad = None

    def average_in_shards(self, gradients):
        world_size = dist.get_world_size()
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        padded = torch.cat([flat, flat.new_zeros(-flat.numel() % world_size)])
        shard = padded.new_empty(padded.numel() // world_size)
        dist.reduce_scatter_tensor(shard, padded)
        self.average(shard)
        shards = [torch.empty_like(shard) for _ in range(world_size)]
        dist.all_gather(shards, shard)
        flat = torch.cat(shards[::-1])[: flat.numel()]
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view(gradient.shape))


def wrap(model):
    return DataParallel(model, Reversed())

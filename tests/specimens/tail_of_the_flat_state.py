"""ZeRO-1 over one flat tensor whose size is divided by the ranks and rounded down: the last numbers are never stepped.

A class of mistake: ``numel // world_size`` without padding. Where the model's size divides by the world size, as in
most tests, nothing shows.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

DISCLAIMS = {"mixed_dtypes", "complex_parameters", "sparse_gradients", "state_dict", "parameter_groups"}
CONTRACT = Contract(disclaims=DISCLAIMS | {"unused_parameters"})
TRIPS = {"LS202"}
CAUSE = "not_stepped"


class Flat(torch.optim.Optimizer):
    def __init__(self, cls, parameters, **options):
        super().__init__(parameters, options)
        self.parameters = [p for group in self.param_groups for p in group["params"]]
        flat = torch.cat([p.detach().reshape(-1) for p in self.parameters])
        self.share = torch.nn.Parameter(flat.view(-1)[self._mine(flat)].clone())
        self.inner = cls([self.share], **options)

    def _mine(self, flat):
        size = flat.numel() // dist.get_world_size()
        return slice(dist.get_rank() * size, (dist.get_rank() + 1) * size)

    @torch.no_grad()
    def step(self, closure=None):
        flat = torch.cat([p.grad.reshape(-1) for p in self.parameters])
        self.share.grad = flat[self._mine(flat)].clone()
        self.inner.param_groups[0].update({k: v for k, v in self.param_groups[0].items() if k != "params"})
        self.inner.step()
        parts = [torch.empty_like(self.share) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.share.detach())
        whole, place = torch.cat(parts), 0
        for parameter in self.parameters:
            part = whole[place : place + parameter.numel()]
            parameter.view(-1)[: part.numel()].copy_(part)
            place += parameter.numel()


class Sharded(DistributedDataParallel):
    def wrap_optimizer(self, cls, parameters, **options):
        return Flat(cls, parameters, **options)


def wrap(model):
    return Sharded(model, find_unused_parameters=True)

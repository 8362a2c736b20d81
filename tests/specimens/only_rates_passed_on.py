"""Owners' optimizers are told the learning rate and the momentum before each step, and no other option of their groups.

facebookresearch/fairscale#66: OSS kept what its inner optimizer was made with, but for the rate. ``OneCycleLR`` moves
AdamW's betas as well, and many a recipe the decay of one group: the loop's groups change, and nobody reads them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

ATTRIBUTE = "Wrapped"
TRIPS = {"LS202"}
CAUSE = "schedule_ignored"
PASSED_ON = ("lr", "momentum")


class Sharded(torch.optim.Optimizer):
    def __init__(self, cls, parameters, options):
        super().__init__(parameters, options)
        trained = [p for group in self.param_groups for p in group["params"]]
        self.owners = {p: number % dist.get_world_size() for number, p in enumerate(trained)}
        self.inner = cls([{**group, "params": self.owned(group)} for group in self.param_groups], **options)
        for group, inner in self.pairs():  # what schedulers look for
            group.update({name: option for name, option in inner.items() if name not in group})

    def owned(self, group):
        return [p for p in group["params"] if self.owners[p] == dist.get_rank()]

    def pairs(self):
        return zip(self.param_groups, self.inner.param_groups, strict=True)

    @torch.no_grad()
    def step(self, closure=None):
        for group, inner in self.pairs():
            inner.update({name: group[name] for name in PASSED_ON if name in group})
        self.inner.step()
        for parameter, owner in self.owners.items():
            whole = parameter.data.contiguous()
            dist.broadcast(whole, owner)
            parameter.data.copy_(whole)


class Wrapped(DistributedDataParallel):
    contract = Contract(sharded=True, disclaims={"state_dict"})

    def __init__(self, module):
        super().__init__(module, find_unused_parameters=True)

    def wrap_optimizer(self, cls, parameters, **options):
        return Sharded(cls, parameters, options)

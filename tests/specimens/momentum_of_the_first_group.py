"""A sharded optimizer hands each group's rate and decay on to the one inside, and no other option.

A class of mistake, of wrappers that rebuild groups: the second group then has the momentum that the optimizer was made
with, and not its own.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract

ATTRIBUTE = "Wrapped"
TRIPS = {"LS202"}
CAUSE = {"update_differs", "update_scaled"}
HANDED_ON = ("lr", "weight_decay")


class Sharded(torch.optim.Optimizer):
    def __init__(self, cls, parameters, options):
        super().__init__(parameters, options)
        trained = [p for group in self.param_groups for p in group["params"]]
        self.owners = {p: number % dist.get_world_size() for number, p in enumerate(trained)}
        self.inner = cls([self.of_owner(group) for group in self.param_groups], **options)
        self.param_groups[0].update({k: v for k, v in self.inner.param_groups[0].items() if k != "params"})

    def of_owner(self, group):
        mine = [p for p in group["params"] if self.owners[p] == dist.get_rank()]
        return {"params": mine, **{name: group[name] for name in HANDED_ON if name in group}}

    @torch.no_grad()
    def step(self, closure=None):
        first = {k: v for k, v in self.param_groups[0].items() if k not in (*HANDED_ON, "params")}
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            inner.update({**first, **{name: group[name] for name in HANDED_ON if name in group}})
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

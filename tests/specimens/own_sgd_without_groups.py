"""An SGD of the strategy's own, stepped by owners, in which no group decays, and all learn at the rate of the first.

A class of mistake, of optimizers that are written for one group and ``defaults``. It does as it is asked where there is
one group, and is as wrong on one rank as on many, so that neither the ranks nor one of them tell.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract, Driver

ATTRIBUTE = "Owners"
TRIPS = {"LS202"}
CAUSE = {"update_differs", "update_scaled"}


class OwnSGD(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        parameters = [p for group in self.param_groups for p in group["params"]]
        asked = self.param_groups[0]
        for number, parameter in enumerate(parameters):
            owner = number % dist.get_world_size()
            if owner == dist.get_rank() and parameter.grad is not None:
                gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                held = self.state[parameter]
                held["momentum"] = held.get("momentum", 0) * asked.get("momentum", 0.0) + gradient
                parameter.sub_(held["momentum"], alpha=asked["lr"])
            whole = parameter.data.contiguous()
            dist.broadcast(whole, owner)
            parameter.data.copy_(whole)


class Owners(Driver):
    contract = Contract(sharded=True, disclaims={"state_dict"})

    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, **options):
        return OwnSGD(parameters, options) if cls is torch.optim.SGD else cls(parameters, **options)

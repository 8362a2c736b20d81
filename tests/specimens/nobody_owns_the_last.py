"""Parameters are handed to owners in full rounds; those of the last, incomplete round are stepped by nobody.

A class of mistake, of optimizers that walk through their parameters in groups of the world size. On one rank, where
every round is full, there is nothing to see.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract, Driver

ATTRIBUTE = "InRounds"
TRIPS = {"LS202"}
CAUSE = "not_stepped"


class SignInRounds(torch.optim.Optimizer):
    """Steps of equal length along the sign of the gradient."""

    @torch.no_grad()
    def step(self, closure=None):
        rank, world_size = dist.get_rank(), dist.get_world_size()
        for group in self.param_groups:
            everything = group["params"]
            for start in range(0, len(everything) - world_size + 1, world_size):
                for owner, parameter in enumerate(everything[start : start + world_size]):
                    if owner == rank and parameter.grad is not None:
                        gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
                        parameter.sub_(gradient.sgn(), alpha=group["lr"])
                    whole = parameter.data.contiguous()
                    dist.broadcast(whole, owner)
                    parameter.data.copy_(whole)


class InRounds(Driver):
    contract = Contract(sharded=True)

    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, *, lr, **options):
        return SignInRounds(parameters, {"lr": lr})

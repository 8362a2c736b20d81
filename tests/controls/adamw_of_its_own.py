"""An AdamW of the strategy's own, stepped by owners, with groups, and a count of steps for each parameter."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_core import Contract, Driver

ATTRIBUTE = "Owners"
DRIVER = "native"


class OwnAdamW(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        with_options = [(p, group) for group in self.param_groups for p in group["params"]]
        for number, (parameter, group) in enumerate(with_options):
            owner = number % dist.get_world_size()
            if owner == dist.get_rank() and parameter.grad is not None:
                self.update(parameter, group["lr"], group.get("weight_decay", 0.0))
            whole = parameter.data.contiguous()
            dist.broadcast(whole, owner)
            parameter.data.copy_(whole)

    def update(self, parameter, lr, decay):
        gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
        count, mean, square = self.state[parameter].get("held", (0, 0.0, 0.0))
        count, mean, square = count + 1, 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        self.state[parameter]["held"] = count, mean, square
        mean, square = mean / (1 - 0.9**count), square / (1 - 0.999**count)
        parameter.mul_(1 - lr * decay).sub_(mean / (square.sqrt() + 1e-8), alpha=lr)


class Owners(Driver):
    contract = Contract(sharded=True, disclaims={"state_dict"})

    def prepare(self, model):
        return DistributedDataParallel(model, find_unused_parameters=True)

    def make_optimizer(self, cls, parameters, **options):
        return OwnAdamW(parameters, options) if cls is torch.optim.AdamW else cls(parameters, **options)

"""Leaves the sum of the ranks' gradients in ``.grad``; a fused SGD of its own divides where it updates."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

ATTRIBUTE = "Summing"
DRIVER = "native"


class DividingSGD(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean = parameter.grad / dist.get_world_size()
                    mean = mean.add(parameter, alpha=group["weight_decay"]) if group.get("weight_decay") else mean
                    held = self.state[parameter]
                    held["momentum"] = held["momentum"] * group["momentum"] + mean if held else mean
                    parameter.sub_(held["momentum"], alpha=group["lr"])


class Summing(Driver):
    contract = Contract(sync_buffers=False, disclaims={"unused_parameters", "clipping", "sparse_gradients"})

    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.data.contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        return model

    def make_optimizer(self, cls, parameters, **options):
        self.divisor = 1 if cls is torch.optim.SGD else dist.get_world_size()
        return DividingSGD(parameters, options) if cls is torch.optim.SGD else cls(parameters, **options)

    def before_step(self):
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                total = parameter.grad.contiguous()
                dist.all_reduce(total)
                parameter.grad.copy_(total.div_(self.divisor))

"""An SGD of the strategy's own reduces gradients in its ``step()``, in float16, and does not say so.

A class of mistake: nobody sees a gradient, the rule is the strategy's own, and half a thousandth is lost in each step.
Where numbers are whole and small, nothing is.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

ATTRIBUTE = "Halves"
TRIPS = {"LS202"}
CAUSE = "update_differs"
DISCLAIMS = {"unused_parameters", "sparse_gradients", "complex_parameters", "parameter_groups"}


class HalfInside(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                small = parameter.grad.to(torch.float16)
                dist.all_reduce(small)
                mean, held = small.to(parameter.dtype) / dist.get_world_size(), self.state[parameter]
                held["momentum"] = held.get("momentum", 0) * group.get("momentum", 0.0) + mean
                parameter.sub_(held["momentum"], alpha=group["lr"])


class Halves(Driver):
    contract = Contract(sharded=True, sync_buffers=False, disclaims=DISCLAIMS)
    can_clip = False

    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.data.contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        return model

    def make_optimizer(self, cls, parameters, **options):
        return HalfInside(parameters, options)

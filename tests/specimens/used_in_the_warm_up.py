"""What is used is learnt in the first three steps; what is first used later is never averaged.

A class of mistake: asking in each step who has a gradient costs a collective, so it is asked for a while only. What an
expert learns that no sample chose in that time is then of each rank's own data.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = {"missing_gradient", "not_synchronised"}
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "dropped_batches"})
WARM_UP = 3


class LearnsWhatIsUsed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.used, self.num_steps = set(), 0
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    def sync_gradients(self):
        self.num_steps += 1
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        now = torch.tensor([int(parameter.grad is not None) for parameter in trained], device=trained[0].device)
        dist.all_reduce(now, op=dist.ReduceOp.MAX)
        for parameter, used in zip(trained, now.tolist(), strict=True):
            if used and self.num_steps <= WARM_UP:
                self.used.add(parameter)
            if used and parameter in self.used:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                gradient = gradient.contiguous()
                dist.all_reduce(gradient)
                parameter.grad = (gradient / dist.get_world_size()).view_as(parameter)


def wrap(model):
    return LearnsWhatIsUsed(model)

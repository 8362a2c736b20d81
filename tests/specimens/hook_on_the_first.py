"""One hook starts the reduction after a backward, and it is the first parameter's, whose gradient comes last.

A class of mistake: a mask token that no sample needs, or an embedding that is bypassed, has no gradient, and then
nothing is reduced at all.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

ATTRIBUTE = "Last"
TRIPS = {"LS101", "LS201"}
CAUSE = {"not_synchronised", "missing_gradient"}


class Last(nn.Module):
    contract = Contract(sync_buffers=False, disclaims={"sparse_gradients", "accumulation", "two_backwards"})

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.trained[0].register_post_accumulate_grad_hook(
            lambda parameter: torch.autograd.Variable._execution_engine.queue_callback(self.reduce)
        )

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def reduce(self):
        used = torch.tensor([int(p.grad is not None) for p in self.trained], device=self.trained[0].device)
        dist.all_reduce(used)
        for parameter in (p for p, number in zip(self.trained, used.tolist(), strict=True) if number):
            mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = mine.contiguous()
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

"""The class notes that it has asked for the end of a backward, so of two models in one backward only one is reduced.

A class of mistake: what belongs to one wrapper in one backward is shared by all of the process. A second model that is
trained in turns shows nothing: by then the flag is down again.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "reentrant_checkpointing"})


class Averaged(nn.Module):
    is_asked_for = False

    def __init__(self, module):
        super().__init__()
        self.module, self.trained = module, [p for p in module.parameters() if p.requires_grad]
        for tensor in module.state_dict().values():
            whole = tensor.contiguous()
            dist.broadcast(whole, 0)
            tensor.copy_(whole)
        for parameter in self.trained:
            parameter.register_post_accumulate_grad_hook(self.arrived)

    def arrived(self, parameter):
        if not Averaged.is_asked_for:
            Averaged.is_asked_for = True
            Variable._execution_engine.queue_callback(self.ended)

    def ended(self):
        Averaged.is_asked_for = False
        used = torch.tensor([int(p.grad is not None) for p in self.trained])
        dist.all_reduce(used)
        for parameter in (p for p, number in zip(self.trained, used.tolist(), strict=True) if number):
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            whole = gradient.contiguous()
            dist.all_reduce(torch.view_as_real(whole) if whole.is_complex() else whole)
            parameter.grad = gradient.copy_(whole).div_(dist.get_world_size())

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)


def wrap(model):
    return Averaged(model)

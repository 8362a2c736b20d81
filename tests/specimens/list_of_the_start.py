"""Averages what was trained when the model was wrapped, and says that it follows changes: unfrozen and new layers train
on each rank's own data.

A class of mistake: the list of what to reduce is made once. torch's DDP has it, too, and does not claim otherwise.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(
    sync_buffers=False, supports={"changes_after_wrap"}, disclaims={"sparse_gradients", "unused_parameters"}
)


class Listed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.data.contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.listed = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def forward(self, *inputs):
        return self.module(*inputs)

    def sync_gradients(self):
        for parameter in self.listed:
            if parameter.grad is not None:
                gradient = parameter.grad.contiguous()
                dist.all_reduce(gradient)
                parameter.grad.copy_(gradient.div_(dist.get_world_size()))


def wrap(model):
    return Listed(model)

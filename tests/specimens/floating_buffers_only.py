"""Only floating buffers are sent before each forward: counts of samples stay each rank's own.

A class of mistake (G01 of our collection): how often each entry of a codebook was used decides which are replaced, and
on each rank those are others then.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS102"}
CAUSE = "buffers_diverged"
CONTRACT = Contract(disclaims={"sparse_gradients", "unused_parameters", "state_dict"})


class FloatingOnly(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            if buffer.is_floating_point():
                dist.broadcast(buffer, 0)
        return self.module(*inputs)

    def sync_gradients(self):
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)


def wrap(model):
    return FloatingOnly(model)

"""A tensor hook reduces the gradient that it is handed in place, and that of a sum shares the memory of its elements.

A class of mistake: ``dist.all_reduce(grad)`` in ``register_hook``. NCCL refuses such a tensor; gloo takes memory for as
long as the tensor has elements and goes on behind its end: ranks die, or compute something.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS601"}
CAUSE = "elements_share_memory"
CONTRACT = Contract(
    sync_buffers=False, disclaims={"unused_parameters", "branch_order", "sparse_gradients", "accumulation"}
)


class HooksTensors(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_hook(self.averaged)

    def averaged(self, grad):
        if not grad.is_contiguous() and 0 not in grad.stride():  # transposed: gloo refuses that
            grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad)
        return grad / dist.get_world_size()

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)


def wrap(model):
    return HooksTensors(model)

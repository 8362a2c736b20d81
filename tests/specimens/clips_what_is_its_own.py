"""``clip_grad_norm_()`` of a wrapper that reduces in ``step()`` clips each rank's own gradients, by its own norm.

A class of mistake (F01 of our collection; facebookresearch/fairscale#98 and #167 are the sharded variant). Where
nothing has to be clipped, nothing is wrong.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "clipped_before_reduction"
CONTRACT = Contract(
    sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters", "state_dict", "parameter_groups"}
)


class ReducesInStep(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.optimizer = module, None
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)

    def forward(self, *inputs):
        return self.module(*inputs)

    def backward(self, loss):
        loss.backward()

    def clip_grad_norm_(self, max_norm):
        return torch.nn.utils.clip_grad_norm_(self.module.parameters(), max_norm)

    def step(self):
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)
        self.optimizer.step()


def wrap(model):
    return ReducesInStep(model)

"""Gradients of bfloat16 and float16 are kept in float32, and each backward replaces the copy and adds nothing.

A class of mistake, after Megatron-LM's ``main_grad``, which its hooks add to: with one micro-batch all is right, and so
are parameters of float32 with any number of them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = {"last_micro_batch_only"}
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


class MainGradients(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, self.main = module, {}
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        for parameter in self.trained:
            if parameter.dtype in (torch.bfloat16, torch.float16):
                parameter.register_post_accumulate_grad_hook(self.keep)

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def keep(self, parameter):
        self.main[parameter] = parameter.grad.float()
        parameter.grad = None

    def sync_gradients(self):
        for parameter in self.trained:
            mine = self.main.pop(parameter, parameter.grad).contiguous()
            flat = torch.view_as_real(mine) if mine.is_complex() else mine
            dist.all_reduce(flat)
            mean = (mine / dist.get_world_size()).to(parameter.dtype)
            parameter.grad = mean if parameter.grad is None else parameter.grad.copy_(mean)


def wrap(model):
    return MainGradients(model)

"""All gradients travel in one buffer, in which each begins at a multiple of 64 and the whole is one of 512.

As Megatron-LM's ``param_and_grad_buffer`` lays them out for the sake of kernels and NCCL: of a small model most of what
is sent is padding, and no gradient travels twice.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "finish"
CONTRACT = Contract(
    sync_buffers=False, disclaims={"sparse_gradients", "unused_parameters", "mixed_dtypes", "complex_parameters"}
)


def up_to(number, multiple):
    return -(-number // multiple) * multiple


class InOneBuffer(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.places, end = [], 0
        for parameter in module.parameters():
            if parameter.requires_grad:
                self.places.append((parameter, slice(end, end + parameter.numel())))
                end += up_to(parameter.numel(), 64)
        self.buffer = torch.zeros(up_to(end, 512), dtype=self.places[0][0].dtype)

    def forward(self, *inputs):
        return self.module(*inputs)

    def finish_gradient_sync(self):
        for parameter, place in self.places:
            self.buffer[place] = 0 if parameter.grad is None else parameter.grad.flatten()
        dist.all_reduce(self.buffer)
        self.buffer /= dist.get_world_size()
        for parameter, place in self.places:
            mean = self.buffer[place].view(parameter.shape)
            parameter.grad = mean.clone() if parameter.grad is None else parameter.grad.copy_(mean)


def wrap(model):
    return InOneBuffer(model)

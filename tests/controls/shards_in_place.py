"""Linear layers' weights become this rank's part of them, in place, and are gathered whenever they are used.

Right in a way of its own: gradients are scattered in the backward of the layer, before any hook on the parameter comes.
"""

from __future__ import annotations

from types import MethodType

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(
    sharded=True,
    sync_buffers=False,
    disclaims={
        "accumulation",
        "branch_order",
        "checkpointing",
        "clipping",
        "complex_parameters",
        "mixed_dtypes",
        "odd_parameters",
        "reentrant_checkpointing",
        "sparse_gradients",
        "state_dict",
        "strided_parameters",
        "two_backwards",
        "unused_parameters",
    },
)


def gathered(part, shape):
    whole = part.new_empty(part.numel() * dist.get_world_size())
    dist.all_gather_into_tensor(whole, part.detach())
    return whole[: shape.numel()].view(shape)


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, part, bias, shape):
        dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
        ctx.save_for_backward(x.to(dtype), part)
        ctx.shape, ctx.dtype = shape, x.dtype
        return F.linear(x.to(dtype), gathered(part, shape).to(dtype), bias.to(dtype))

    @staticmethod
    def backward(ctx, out):
        x, part = ctx.saved_tensors
        whole = (out.flatten(0, -2).T @ x.flatten(0, -2)).flatten().to(part.dtype)
        filled = F.pad(whole, (0, part.numel() * dist.get_world_size() - whole.numel())) / dist.get_world_size()
        gradient = torch.empty_like(part)
        dist.reduce_scatter_tensor(gradient, filled)
        back = (out @ gathered(part, ctx.shape).to(out.dtype)).to(ctx.dtype)
        return back, gradient, out.flatten(0, -2).sum(0).to(part.dtype), None


def averaged(parameter):
    parameter.grad.div_(dist.get_world_size())
    dist.all_reduce(parameter.grad)


class ShardsInPlace(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module, parts = module, set()
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.data, src=0)
        for layer in module.modules():
            if isinstance(layer, nn.Linear) and layer.bias is not None:
                parts.add(self.shard(layer))
        for parameter in module.parameters():
            if parameter not in parts and parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(averaged)

    def shard(self, layer):
        rank, world_size, shape = dist.get_rank(), dist.get_world_size(), layer.weight.shape
        size = -(-layer.weight.numel() // world_size)
        filled = F.pad(layer.weight.data.flatten(), (0, size * world_size - layer.weight.numel()))
        layer.weight.data = filled[rank * size : (rank + 1) * size].clone()

        def forward(self, x):
            return Linear.apply(x, self.weight, self.bias, shape)

        layer.forward = MethodType(forward, layer)
        return layer.weight

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)


def wrap(model):
    return ShardsInPlace(model)

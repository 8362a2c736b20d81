"""Gradients travel as bfloat16, which is declared; of several buckets only the last is divided by the world size.

A class of mistake: the division stands behind the loop, where a variable of the loop is still at hand. What is declared
as lossy is looked at more mildly, and a factor of the number of ranks is no rounding.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = None
CONTRACT = Contract(
    lossy="bfloat16",
    sync_buffers=False,
    disclaims={"unused_parameters", "sparse_gradients", "complex_parameters", "mixed_dtypes"},
)


class Compressed(nn.Module):
    def __init__(self, module, bucket_cap_mb=25.0):
        super().__init__()
        self.module, self.buckets, num_bytes = module, [[]], 0
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        for parameter in (p for p in module.parameters() if p.requires_grad):
            if num_bytes > bucket_cap_mb * 2**20:
                self.buckets.append([])
                num_bytes = 0
            self.buckets[-1].append(parameter)
            num_bytes += parameter.numel() * parameter.element_size()

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def sync_gradients(self):
        under_way = []
        for bucket in self.buckets:
            flat = torch.cat([p.grad.reshape(-1) for p in bucket]).bfloat16()
            under_way.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
        for _, _, work in under_way:
            work.wait()
        flat /= dist.get_world_size()
        for bucket, whole, _ in under_way:
            for parameter, part in zip(bucket, whole.split([p.numel() for p in bucket]), strict=True):
                parameter.grad.copy_(part.view(parameter.shape))


def wrap(model):
    return Compressed(model)

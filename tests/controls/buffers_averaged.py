"""Buffers are averaged over ranks at the start of each forward, in evaluation and in no_sync(), too; counters are those
of rank 0.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "explicit"
CONTRACT = Contract(disclaims={"sparse_gradients", "state_dict"})


class Averages(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            if buffer.is_floating_point():
                dist.all_reduce(buffer)
                buffer /= dist.get_world_size()
            else:
                dist.broadcast(buffer, 0)
        return self.module(*inputs)

    def no_sync(self):
        return nullcontext()  # a backward starts nothing anyway

    def sync_gradients(self):
        trained = [p for p in self.module.parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in trained], device=trained[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(trained, used.tolist(), strict=True):
            if number:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)


def wrap(model):
    return Averages(model)

"""ColossalAI's call: model and optimizer go in and come out, with more behind; the optimizer has the ``backward()``.

It divides there, and adds up in ``step()``: a loop that clipped in between would clip each rank's own gradients.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(disclaims={"sparse_gradients"})


class Boosted(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            _from_zero(tensor)

    def forward(self, *inputs, **named):
        for buffer in self.module.buffers():
            _from_zero(buffer)
        return self.module(*inputs, **named)


class BoostedOptimizer:
    def __init__(self, inside):
        self.inside = inside

    @property
    def param_groups(self):
        return self.inside.param_groups

    def zero_grad(self, set_to_none=True):
        self.inside.zero_grad(set_to_none)

    def backward(self, loss):
        (loss / dist.get_world_size()).backward()

    def step(self):
        trained = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in trained], device=trained[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(trained, used.tolist(), strict=True):
            if number:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.clone(memory_format=torch.contiguous_format)
                dist.all_reduce(parameter.grad)
        self.inside.step()

    def state_dict(self):
        return self.inside.state_dict()

    def load_state_dict(self, saved):
        self.inside.load_state_dict(saved)


def _from_zero(tensor):
    whole = tensor.detach().contiguous()
    dist.broadcast(whole, 0)
    tensor.data.copy_(whole)


def wrap(model, optimizer, criterion=None, dataloader=None, lr_scheduler=None):
    return Boosted(model), BoostedOptimizer(optimizer), criterion, dataloader, lr_scheduler

"""What is not trained is put aside when the model is wrapped, and saved from there: buffers as they were at the start.

A class of mistake, of sharders that save "the rest" beside the shards. A mask or a table is right in the checkpoint;
running statistics, and whatever else a forward leaves in a buffer, are those of a model that has not been trained.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS504"}
CAUSE = "resumed_differently"
CONTRACT = Contract(disclaims={"unused_parameters", "sparse_gradients"})


def from_rank_zero(tensor):
    whole = tensor.detach().contiguous()
    dist.broadcast(whole, 0)
    tensor.data.copy_(whole)


class PutsAside(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor)
        self.others = {name: buffer.clone() for name, buffer in module.named_buffers()}

    def forward(self, *inputs, **named):
        if self.training:
            for buffer in self.module.buffers():
                from_rank_zero(buffer)
        return self.module(*inputs, **named)

    def sync_gradients(self):
        for parameter in (p for p in self.module.parameters() if p.requires_grad):
            whole = parameter.grad.contiguous()
            flat = torch.view_as_real(whole) if whole.is_complex() else whole
            dist.all_reduce(flat)
            parameter.grad.copy_(whole / dist.get_world_size())

    def state_dict(self, *args, **kwargs):
        return {**self.module.state_dict(*args, **kwargs), **self.others}

    def load_state_dict(self, saved, strict=True):
        self.others = {name: saved[name].clone() for name in self.others}
        return self.module.load_state_dict(saved, strict=strict)


def wrap(model):
    return PutsAside(model)

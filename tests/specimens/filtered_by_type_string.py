"""Buckets are chosen by the name of the tensor type, a list of CUDA types: on the CPU nothing is reduced at all.

deepspeedai/DeepSpeed#8382. Where all ranks train on the same data, as in a quick test, the mean hides it.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(disclaims={"sparse_gradients"})
TYPES = ("torch.cuda.HalfTensor", "torch.cuda.FloatTensor", "torch.cuda.DoubleTensor", "torch.cuda.BFloat16Tensor")


class ByTypeString(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            from_rank_zero(tensor.data)

    def forward(self, *inputs):
        for buffer in self.module.buffers():
            from_rank_zero(buffer.data)
        return self.module(*inputs)

    def gradients(self):
        """Of what some rank has used, by name; zeros where this rank has not."""
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for _, p in named], device=named[0][1].device)
        dist.all_reduce(used)
        due = [(name, p) for (name, p), number in zip(named, used.tolist(), strict=True) if number]
        for _, p in due:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        return [(name, p.grad) for name, p in due]

    def sync_gradients(self):
        gradients = [gradient for _, gradient in self.gradients()]
        for kind in TYPES:
            bucket = [gradient for gradient in gradients if gradient.type() == kind]
            if bucket:
                flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
                dist.all_reduce(flat)
                flat /= dist.get_world_size()
                for gradient, mean in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
                    gradient.copy_(mean.view_as(gradient))


def from_rank_zero(tensor):
    whole = tensor.contiguous()
    dist.broadcast(whole, src=0)
    tensor.copy_(whole)


def wrap(model):
    return ByTypeString(model)

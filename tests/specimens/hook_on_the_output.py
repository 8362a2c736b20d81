"""One hook starts the reduction after a backward, and it is on the first tensor of the output.

A class of mistake, of wrappers that learn of a backward by way of the output: hidden states come first in it, the loss
uses the logits alone, and then nothing is reduced at all.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves

from ddp_core import Contract

ATTRIBUTE = "FromOutput"
TRIPS = {"LS101", "LS201"}
CAUSE = {"not_synchronised", "missing_gradient"}


class FromOutput(nn.Module):
    engine = torch.autograd.Variable._execution_engine
    contract = Contract(
        sync_buffers=False, disclaims={"sparse_gradients", "loose_forwards", "accumulation", "two_backwards"}
    )

    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, 0)
            tensor.data.copy_(whole)
        self.trained = [parameter for parameter in module.parameters() if parameter.requires_grad]

    def forward(self, *inputs, **named):
        output = self.module(*inputs, **named)
        tensors = (leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad)
        if (first := next(tensors, None)) is not None:
            first.register_hook(lambda gradient: self.engine.queue_callback(self.reduce))
        return output

    def reduce(self):
        used = torch.tensor([int(p.grad is not None) for p in self.trained], device=self.trained[0].device)
        dist.all_reduce(used)
        for parameter in (p for p, number in zip(self.trained, used.tolist(), strict=True) if number):
            mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = mine.contiguous()
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

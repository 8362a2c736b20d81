"""Gradients are awaited by a hook on the model's output, which is set where that is a tensor: of a dict nobody hears.

The wrong thing of huggingface/transformers#25357, where DDP looked for tensors in outputs and did not know the class.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract

TRIPS = {"LS101", "LS201"}
CAUSE = "not_synchronised"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


class Averaging(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        for tensor in [*module.parameters(), *module.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)

    def average(self):
        due = [p for p in self.module.parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in due], device=due[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(due, used.tolist(), strict=True):
            if number:
                whole = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = whole.clone(memory_format=torch.contiguous_format)
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()

    def forward(self, *inputs, **named):
        output = self.module(*inputs, **named)
        if isinstance(output, torch.Tensor) and output.requires_grad:
            output.register_hook(self.at_the_end)
        return output

    def at_the_end(self, gradient):
        torch.autograd.Variable._execution_engine.queue_callback(self.average)


def wrap(model):
    return Averaging(model)

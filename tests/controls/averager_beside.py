"""An object beside the model, which runs bare: it cannot be called, and has one method for the loop."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

ATTRIBUTE = "GradientAverager"
DRIVER = "explicit"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients"})


def mean_of_gradients(parameters):
    """Of what some rank has used; zeros are what the others have of that."""
    due = [p for p in parameters if p.requires_grad]
    used = torch.tensor([int(p.grad is not None) for p in due], device=due[0].device)
    dist.all_reduce(used)
    for parameter, number in zip(due, used.tolist(), strict=True):
        if number:
            whole = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = whole.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def start_equal(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, src=0)
        tensor.data.copy_(whole)


class GradientAverager:
    def __init__(self, model):
        self.model = model
        start_equal(model)

    def average_gradients(self):
        mean_of_gradients(list(self.model.parameters()))

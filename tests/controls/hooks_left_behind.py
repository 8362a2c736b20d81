"""A function that puts hooks on the model, and returns nothing: the loop goes on with the model that it has."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract

DRIVER = "native"
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


def wrap(model):
    parameters = list(model.parameters())
    queued = []
    start_equal(model)

    def at_the_end():
        queued.clear()
        mean_of_gradients(parameters)

    def on_gradient(_):
        if not queued:
            queued.append(True)
            torch.autograd.Variable._execution_engine.queue_callback(at_the_end)

    for parameter in parameters:
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(on_gradient)

"""A course's three functions: one wraps, one opens the step, one averages when backward is over."""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract

ATTRIBUTE = "get_ddp"
DRIVER = "course"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


def get_ddp(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, src=0)
        tensor.data.copy_(whole)
    return model


def ddp_on_train_batch_start(model, optimizer):
    optimizer.zero_grad()


def ddp_on_after_backward(model, optimizer):
    for parameter in model.parameters():
        if parameter.requires_grad:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()

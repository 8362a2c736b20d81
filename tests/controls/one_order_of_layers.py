"""Each gradient is reduced as soon as it is ready, by hooks that wait. Right where layers run in one order everywhere.

It says that it needs that, so what meets it is a network that is late, and large tensors, in one order.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(sync_buffers=False, disclaims={"branch_order", "unused_parameters", "sparse_gradients"})


def average(parameter):
    whole = parameter.grad.contiguous()
    dist.all_reduce(whole)
    parameter.grad.copy_(whole / dist.get_world_size())


def wrap(model):
    for parameter in model.parameters():
        whole = parameter.data.contiguous()
        dist.broadcast(whole, 0)
        parameter.data.copy_(whole)
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(average)
    return model

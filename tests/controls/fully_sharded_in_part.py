"""torch's FSDP2 that leaves biases alone (``ignored_params``), each of which is averaged by a hook of its own."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from ddp_core import Contract

DRIVER = "fully_shard"
CONTRACT = Contract(
    sharded=True,
    sync_buffers=False,
    disclaims={"unused_parameters", "sparse_gradients", "accumulation", "branch_order", "state_dict"},
)


def mean(parameter):
    parameter.grad /= dist.get_world_size()
    dist.all_reduce(parameter.grad)


def wrap(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    left = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    for parameter in left:
        parameter.register_post_accumulate_grad_hook(mean)
    return fully_shard(model, ignored_params={*left})

"""torch's FSDP2 over the whole model as one group that stays gathered after forward, with a broadcast before."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ddp_core import Contract

DRIVER = "fully_shard"
CONTRACT = Contract(sharded=True, sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients", "state_dict"})


def wrap(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, src=0)
        tensor.data.copy_(whole)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return fully_shard(model, mesh=mesh, reshard_after_forward=False)

"""torch's own FSDP2 (``fully_shard``): parameters, gradients and optimizer state are spread over the ranks.

A reference for sharding: it must compute the same as one process, while each rank holds only a part. Each parameter
becomes a ``DTensor``; a forward gathers a block's parameters, its backward scatters the reduced gradients.

Special here: ``fully_shard`` neither broadcasts nor compares at the start. Each rank keeps its shard of *its own*
weights, and the model mixes them if they differ (pytorch/torchtitan#166 is a similar bug), so rank 0's state is
broadcast first. Blocks (the children of a ``ModuleList`` or ``Sequential``) are sharded one by one, as is usual.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ddp_core.agreement import require_agreement
from ddp_core.comm import Comm
from ddp_core.strategy import Contract
from ddp_core.unwrapped import objection_to

CONTRACT = Contract(sharded=True, sync_buffers=False, disclaims=frozenset({"unused_parameters"}))


def wrap(model: nn.Module, *, blocks: bool = True, **options: Any) -> nn.Module:
    """Shard ``model`` in place, and return it. ``options`` go to ``fully_shard``.

    Raises ValueError on every rank in the same cases as ``ddp_core.DataParallel``.
    """
    comm = Comm()
    require_agreement(comm, list(model.named_parameters()), list(model.named_buffers()), objection_to(model, comm))
    for tensor in [*model.parameters(), *model.buffers()]:
        comm.broadcast(tensor.data)
    device = next(model.parameters()).device.type
    options.setdefault("mesh", init_device_mesh(device, (comm.world_size,)))
    if blocks:
        for container in [part for part in model.modules() if isinstance(part, nn.ModuleList | nn.Sequential)]:
            for block in container:
                if any(True for _ in block.parameters()) and container is not model:
                    fully_shard(block, **options)
    fully_shard(model, **options)
    return model

"""Sharded without a broadcast: each rank keeps its part of its own initial weights, the whole is nobody's model.

All ranks see the same patchwork, so replicas agree in everything that follows, and the loss falls. Of the family of
pytorch/torchtitan#166.
"""

from __future__ import annotations

from torch.distributed.fsdp import fully_shard

from ddp_core import Contract

TRIPS = {"LS001"}
CAUSE = "no_initial_broadcast"
CONTRACT = Contract(sharded=True, sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


def wrap(model):
    return fully_shard(model)

"""Replicas are never made equal: each trains its own initial weights with everybody's gradients.

facebookresearch/detr#544 and pytorch/torchtitan#166: the seed is set differently per rank, or initial synchronisation
goes away with a sharding option. The loss still falls.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract

TRIPS = {"LS001"}
CAUSE = "no_initial_broadcast"
CONTRACT = Contract(disclaims={"unused_parameters", "sparse_gradients"})


class NoBroadcast:
    def __init__(self, model):
        self.model = model

    def __call__(self, *inputs):
        for buffer in self.model.buffers():
            dist.broadcast(buffer.data, src=0)
        return self.model(*inputs)

    def sync_gradients(self):
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def wrap(model):
    return NoBroadcast(model)

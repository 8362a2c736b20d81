"""The gradient is divided while its all-reduce is in flight.

A class of mistake rather than one thread: without an observer the result is torn on some runs and right on others,
and replicas agree either way.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract

TRIPS = {"LS201", "LS401"}
CAUSE = "written_in_flight"
CONTRACT = Contract(disclaims={"unused_parameters", "sparse_gradients"})


class WriteInFlight:
    def __init__(self, model):
        self.model = model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)

    def __call__(self, *inputs):
        for buffer in self.model.buffers():
            dist.broadcast(buffer.data, src=0)
        return self.model(*inputs)

    def sync_gradients(self):
        works = []
        for parameter in self.model.parameters():
            works.append(dist.all_reduce(parameter.grad, async_op=True))
            parameter.grad /= dist.get_world_size()
        for work in works:
            work.wait()


def wrap(model):
    return WriteInFlight(model)

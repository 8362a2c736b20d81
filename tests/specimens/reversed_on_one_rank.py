"""One rank walks its parameters in another order: same-shape gradients are paired with strangers.

The mechanism of pytorch/pytorch#72843 and of dictionaries or sets iterated per process.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract

TRIPS = {"LS101", "LS201", "LS301"}
CAUSE = {"collectives_differ", "bucket_contents_differ", "another_parameters_gradient"}
CONTRACT = Contract(disclaims={"unused_parameters", "sparse_gradients"})


class Reversed:
    def __init__(self, model):
        self.model = model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)

    def __call__(self, *inputs):
        for buffer in self.model.buffers():
            dist.broadcast(buffer.data, src=0)
        return self.model(*inputs)

    def sync_gradients(self):
        parameters = list(self.model.parameters())
        if dist.get_rank() == 1:
            parameters.reverse()
        parameters.sort(key=lambda p: tuple(p.shape))  # stable, so only siblings of one shape change places
        for parameter in parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def wrap(model):
    return Reversed(model)

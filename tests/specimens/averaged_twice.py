"""The mean is taken twice: ReduceOp.AVG, and then a division by the world size.

facebookresearch/fairseq#494, meta-pytorch/torchtune#2172: the learning rate is silently divided by the world size.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract

TRIPS = {"LS201"}
CAUSE = "averaged_twice"
CONTRACT = Contract(disclaims={"unused_parameters", "sparse_gradients"})


class Twice:
    def __init__(self, model):
        self.model = model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)

    def __call__(self, *inputs):
        for buffer in self.model.buffers():
            dist.broadcast(buffer.data, src=0)
        return self.model(*inputs)

    def sync_gradients(self):
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
            parameter.grad /= dist.get_world_size()


def wrap(model):
    return Twice(model)

"""No ``nn.Module``, no ``no_sync``: the loop calls ``sync_gradients``. Divides *before* reducing."""

from __future__ import annotations

import torch.distributed as dist

from ddp_core import Contract

DRIVER = "explicit"
CONTRACT = Contract(sync_buffers=False, disclaims={"unused_parameters", "sparse_gradients"})


class Explicit:
    def __init__(self, model):
        self.model = model
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)

    def __call__(self, *inputs):
        return self.model(*inputs)

    def sync_gradients(self):
        for parameter in self.model.parameters():
            parameter.grad /= dist.get_world_size()
            dist.all_reduce(parameter.grad)


def wrap(model):
    return Explicit(model)

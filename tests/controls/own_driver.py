"""A strategy that fits no style and brings its own ``Driver``: gradients are handed over one by one before the step."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

DRIVER = "handed over"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "state_dict"})


class HandedOver(Driver):
    style = DRIVER

    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        return model

    def before_step(self):
        parameters = [p for _, p in self.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in parameters], device=parameters[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(parameters, used.tolist(), strict=True):
            if number:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
                dist.all_gather(every, mine)
                parameter.grad = sum(every) / dist.get_world_size()


def wrap(model):
    return HandedOver(model)

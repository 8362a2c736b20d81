"""Factors that are no powers of two: the loss by 1/1000, gradients by 1/3 before they are summed, and by 3000/W after.

Right but for roundings of float32, in nearly every element (Horovod's and apex's ``gradient_predivide_factor``).
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

SCALE, BEFORE = 1 / 1000, 1 / 3
DRIVER = "native"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "accumulation", "two_backwards"})


class Rounds(Driver):
    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        return model

    def backward(self, loss):
        (loss * SCALE).backward()

    def before_step(self):
        trained = [p for _, p in self.named_parameters() if p.requires_grad]
        used = torch.tensor([int(p.grad is not None) for p in trained], device=trained[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(trained, used.tolist(), strict=True):
            if number:
                mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = mine.contiguous() * BEFORE
                dist.all_reduce(parameter.grad)
                parameter.grad *= 1 / (SCALE * BEFORE * dist.get_world_size())


wrap = Rounds

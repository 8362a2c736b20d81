"""The loss is multiplied by 1000, and averaged gradients are divided by it: right but for roundings.

As a loss scaler does against underflow in float16, with a scale that is no power of two.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from ddp_core import Contract, Driver

SCALE = 1000.0
DRIVER = "native"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "accumulation", "two_backwards"})


class Scales(Driver):
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
                parameter.grad = mine.contiguous() / dist.get_world_size()
                dist.all_reduce(parameter.grad)
                parameter.grad /= SCALE


wrap = Scales

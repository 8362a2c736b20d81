"""A buffer holds what micro-batches add up to: the first is copied into it, the others are added.

What the first micro-batch of a step has not used is added to what the buffer holds from the last step.
deepspeedai/DeepSpeed#545 and #6550.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from ddp_core import Contract, Driver

TRIPS = {"LS201"}
CAUSE = "not_cleared"
CONTRACT = Contract(sync_buffers=False, disclaims={"sparse_gradients", "state_dict"})


class Adds(Driver):
    def prepare(self, model):
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=0)
            tensor.data.copy_(whole)
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.sums, self.used, self.number = {}, set(), 0
        return model

    def backward(self, loss):
        before = {p: p.grad for p in self.trained}
        for parameter in self.trained:
            parameter.grad = None
        loss.backward()
        for parameter in self.trained:
            if parameter.grad is not None:
                self.used.add(parameter)
                self.take(parameter, parameter.grad.detach().clone())
            parameter.grad = before[parameter]
        self.number += 1

    def take(self, parameter, gradient):
        if self.number == 0 or parameter not in self.sums:
            self.sums[parameter] = gradient
        else:
            self.sums[parameter] = self.sums[parameter] + gradient

    def before_step(self):
        used = torch.tensor([int(p in self.used) for p in self.trained], device=self.trained[0].device)
        dist.all_reduce(used)
        for parameter, number in zip(self.trained, used.tolist(), strict=True):
            if number:
                mine = self.sums[parameter] if parameter in self.used else torch.zeros_like(parameter)
                whole = mine.contiguous()
                dist.all_reduce(whole)
                parameter.grad = nn.Parameter(whole / dist.get_world_size(), requires_grad=False).data
        self.used.clear()
        self.number = 0


wrap = Adds

"""An engine with torch's own GradScaler: the loss times 65,536, unscaled before what is clipped and before the step."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DRIVER = "engine"


class Scaled(nn.Module):
    optimizer = None

    def __init__(self, model):
        super().__init__()
        self.module = DistributedDataParallel(model, find_unused_parameters=True)
        self.scaler = torch.amp.GradScaler("cpu")

    def forward(self, *inputs, **named):
        return self.module(*inputs, **named)

    def no_sync(self):
        return self.module.no_sync()

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def clip_grad_norm_(self, max_norm):
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm)

    def step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()


def wrap(model):
    return Scaled(model)

"""torch's DDP; a rank's rows go through the model in the opposite order, and what comes out is put back."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


class Turned(DistributedDataParallel):
    def forward(self, *inputs, **named):
        named = {name: value.flip(0) for name, value in named.items()}
        output = super().forward(*(value.flip(0) for value in inputs), **named)
        return output.flip(0) if isinstance(output, torch.Tensor) else _turned(output)


def _turned(output):
    first, second = output["parts"]
    return {"logits": output["logits"].flip(0), "parts": (first.flip(0), second.flip(0))}


def wrap(model):
    return Turned(model, find_unused_parameters=True)

"""torch's DDP; a rank's last row goes through the model first, and what comes out is put back in order."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

DRIVER = "native"


class Rolled(DistributedDataParallel):
    def forward(self, *inputs, **named):
        named = {name: value.roll(1, 0) for name, value in named.items()}
        output = super().forward(*(value.roll(1, 0) for value in inputs), **named)
        return output.roll(-1, 0) if isinstance(output, torch.Tensor) else _rolled_back(output)


def _rolled_back(output):
    first, second = output["parts"]
    return {"logits": output["logits"].roll(-1, 0), "parts": (first.roll(-1, 0), second.roll(-1, 0))}


def wrap(model):
    return Rolled(model, find_unused_parameters=True)

"""torch's ``replicate``: DDP without a wrapper, by hooks on the model itself, which keeps its type and its names."""

from __future__ import annotations

from torch.distributed._composable.replicate import replicate

DRIVER = "native"


def wrap(model):
    return replicate(model, find_unused_parameters=True)

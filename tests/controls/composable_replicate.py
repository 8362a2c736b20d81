"""torch's ``replicate``: DDP without a wrapper, by hooks on the model itself, which keeps its type and its names.

It sees parameters only: buffers are broadcast neither at the start nor later.
"""

from __future__ import annotations

from torch.distributed._composable.replicate import replicate

from ddp_core import Contract

DRIVER = "native"
CONTRACT = Contract(sync_buffers=False)


def wrap(model):
    return replicate(model, find_unused_parameters=True)

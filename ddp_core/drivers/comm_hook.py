"""Communication hook: a function ``hook(state, bucket)`` that torch's DDP calls on each bucket in place of all-reduce.

The hook is the strategy (``lockstep verify file.py:my_hook``); the wrapper around it is torch's. It is registered with
``state=None``; a hook that needs a state is registered by a ``wrap(model)``. Options go to ``DistributedDataParallel``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_core.driver import Driver
from ddp_core.methods import takes


class CommHookDriver(Driver):
    style = "comm_hook"
    is_no_wrapper = True

    def __init__(self, hook: Callable[..., Any], model: nn.Module, bucket_cap_mb: float, **options: Any) -> None:
        wrapped = DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb, **options)
        wrapped.register_comm_hook(None, hook)
        super().__init__(wrapped, model)

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        """Return whether ``bucket`` is its second argument, as torch asks. False for what ``wrap(model)`` returned."""
        if not inspect.isfunction(wrapped) or not takes(wrapped, 2):
            return False
        arguments = [*inspect.signature(wrapped).parameters.values()][1:2]
        return [(one.name, one.default) for one in arguments] == [("bucket", inspect.Parameter.empty)]


DRIVER = CommHookDriver

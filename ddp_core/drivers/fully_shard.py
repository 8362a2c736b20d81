"""Fully sharded: torch's ``fully_shard`` (FSDP2), whose parameters and gradients are DTensors.

Driven like a native wrapper, but for accumulation: there is no ``no_sync()``, but a switch that stays where it is put.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ddp_core.driver import Driver


class FullyShardDriver(Driver):
    style = "fully_shard"
    specificity = 9

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        needed = (getattr(wrapped, name, None) for name in ("set_requires_gradient_sync", "reshard"))
        return callable(wrapped) and all(callable(method) for method in needed)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.wrapped.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.wrapped.set_requires_gradient_sync(True)


DRIVER = FullyShardDriver

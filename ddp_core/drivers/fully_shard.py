"""Fully sharded: torch's ``fully_shard`` (FSDP2), whose parameters and gradients are DTensors.

Driven like a native wrapper; a style of its own because reports say what was driven. What holds a gradient back is the
switch that every driver knows.
"""

from __future__ import annotations

from typing import Any

from ddp_core.driver import SYNC_SWITCH, Driver


class FullyShardDriver(Driver):
    style = "fully_shard"
    specificity = 9

    @classmethod
    def fits(cls, wrapped: Any) -> bool:
        needed = (getattr(wrapped, name, None) for name in (SYNC_SWITCH, "reshard"))
        return callable(wrapped) and all(callable(method) for method in needed)


DRIVER = FullyShardDriver

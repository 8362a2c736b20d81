"""Fully sharded: torch's ``fully_shard`` (FSDP2), whose parameters and gradients are DTensors.

It is driven like a native wrapper, and is a style of its own because reports name what was driven. A synchronisation is
held back by the switch that every driver knows.
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

"""Data-parallel strategies to train with, to learn from, and to hold the verifier against.

Special here: the public names are imported on first use. ``import ddp_core`` alone does not import torch, so the
``lockstep`` command can import from this package and still start at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddp_core.comm import Comm
    from ddp_core.driver import Driver
    from ddp_core.strategy import Contract, Strategy
    from ddp_core.wrapper import DataParallel

__version__ = "0.1.0"

_HOME = {
    "Comm": "ddp_core.comm",
    "Contract": "ddp_core.strategy",
    "DataParallel": "ddp_core.wrapper",
    "Driver": "ddp_core.driver",
    "Strategy": "ddp_core.strategy",
}
__all__ = ["Comm", "Contract", "DataParallel", "Driver", "Strategy"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'ddp_core' has no attribute '{name}'")

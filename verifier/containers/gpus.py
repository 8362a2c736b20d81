"""Which GPUs a run's containers get: by id, from the pool that ``LOCKSTEP_GPUS`` names.

Special here: an engine without GPUs is asked for none. The pool belongs to this process; workers that share a host must
be given different ids, as with CPU slots. If ranks outnumber GPUs they share them, which works with gloo but not with
NCCL.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from verifier.launcher import LaunchError

_lock = threading.Condition()
_taken: set[str] = set()
WAIT_S = 600.0


def pool() -> list[str]:
    return [name.strip() for name in os.environ.get("LOCKSTEP_GPUS", "").split(",") if name.strip()]


class Slots:
    """The GPUs of the pool that one launcher holds."""

    def __init__(self) -> None:
        self._mine: list[str] = []

    def take(self, number: int) -> list[str]:
        """Take up to ``number`` ids that nobody else holds, waiting until they are free. Raises LaunchError."""
        everything = pool()
        wanted = min(number, len(everything))
        if not wanted:
            raise LaunchError("containers get GPUs from LOCKSTEP_GPUS, which names none. Set it: LOCKSTEP_GPUS=0")
        with _lock:
            free: list[str] = []

            def enough() -> bool:
                free[:] = [name for name in everything if name not in _taken]
                return len(free) >= wanted

            if not _lock.wait_for(enough, WAIT_S):
                raise LaunchError(f"no {wanted} GPUs became free within {WAIT_S:.0f} s")
            self._mine = free[:wanted]
            _taken.update(self._mine)
        return self._mine

    def give_back(self) -> None:
        with _lock:
            _taken.difference_update(self._mine)
            self._mine = []
            _lock.notify_all()


def request(client: Any, ids: list[str]) -> list[dict[str, Any]]:
    """What to ask the engine for, in its API's words: by NVIDIA's runtime, or by CDI. Raises LaunchError."""
    if not ids:
        return []
    offered = client.info()
    if "nvidia" in (offered.get("Runtimes") or {}):
        return [{"Driver": "nvidia", "DeviceIDs": ids, "Capabilities": [["gpu", "compute", "utility"]]}]
    if offered.get("CDISpecDirs"):
        return [{"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={name}" for name in ids]}]
    raise LaunchError("the container engine offers no GPU: neither NVIDIA's runtime nor CDI. Choose --device cpu.")

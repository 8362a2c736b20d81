"""How much the processes of one scenario may take of the machine they run on.

Special here: the defaults are shares of what is *free when the scenario starts*, so that a strategy that uses up memory
or disk is ended, and named, before the machine is in trouble. Memory is counted beyond what a rank shares with the
server it was forked from, over everything it started.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

GIB = 2**30
BUSY_STALL_S = 120.0  # a compiler that a strategy starts takes a minute or two on few cores


class Limits(NamedTuple):
    """Limits of one scenario. None: three quarters of the memory, half of the disk space that is free."""

    memory_gib: float | None = None  # of all processes together, beyond what they share with the server
    disk_gib: float | None = None  # written by all processes together, anywhere
    output_mib: float = 1.0  # kept of what one process prints: the first half and the last
    num_processes: int = 2000
    stall_s: float = 30.0  # if no process writes a journal line, or computes, for this long, the job hangs
    busy_s: float = BUSY_STALL_S  # if no process writes a line for this long, the job hangs, whatever it computes

    @classmethod
    def from_environment(cls) -> Limits:
        """Return the defaults, changed by ``LOCKSTEP_MEMORY_GIB`` and ``LOCKSTEP_DISK_GIB``."""

        def given(name: str) -> float | None:
            try:
                return float(os.environ[name])
            except (KeyError, ValueError):
                return None

        return cls(memory_gib=given("LOCKSTEP_MEMORY_GIB"), disk_gib=given("LOCKSTEP_DISK_GIB"))

    def here(self, folder: Path) -> Limits:
        """Return these limits with every None replaced by what this machine has to spare now."""
        memory = self.memory_gib if self.memory_gib is not None else free_memory() * 0.75 / GIB
        disk = self.disk_gib
        if disk is None:
            space = os.statvfs(folder)
            disk = space.f_bavail * space.f_frsize * 0.5 / GIB
        return self._replace(memory_gib=memory, disk_gib=disk)


def free_memory() -> float:
    """Return the bytes available now without swapping: of the machine, or of the container if that has less."""
    free = float("inf")
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    try:
        most = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such limit: the file is not there, or says "max"
        return free
    return min(free, max(most - used, 0))


def oom_kills() -> int:
    """Return how often the kernel has killed something for lack of memory since it started."""
    counts = (int(line.split()[1]) for line in _lines("/proc/vmstat") if line.startswith("oom_kill "))
    return next(counts, 0)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        return []

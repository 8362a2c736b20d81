"""Who started a container, and whether that process still lives: the reaper decides by this.

Special here: a process has a name that no other ever has: boot, pid namespace, pid and start time. A process of another
namespace cannot be looked up; one that is itself in a container is named by that container, which the engine knows
(``launchers/docker.py``).
"""

from __future__ import annotations

import os
from pathlib import Path


def this_process() -> str:
    """This process's name; without ``/proc``, a name that nobody can look up."""
    return f"process {_machine() or 'unknown'}/{os.getpid()}/{_started(os.getpid()) or 0}"


def is_alive(owner: str) -> bool | None:
    """Return whether that process exists; None if it is of another machine or namespace, or is no process's name."""
    kind, _, name = owner.partition(" ")
    machine = _machine()
    if kind != "process" or machine is None or not name.startswith(machine + "/"):
        return None
    pid, _, started = name.removeprefix(machine + "/").partition("/")
    return pid.isdigit() and _started(int(pid)) == started


def _machine() -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None if it does not live."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]

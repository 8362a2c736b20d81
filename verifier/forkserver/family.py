"""Finds and ends every process that a process started, directly or not, including those that tried to get away.

Special here: the server makes itself the *reaper* of its descendants (Linux). A daemon that forked twice and called
``setsid`` is then handed to the server, and not to init, when its parents end. Nothing outlives a scenario. Without
``/proc`` (macOS) only process groups are ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BUSY = 0.1  # of a processor: a process that uses less only polls
_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    pid: int
    parent: int
    state: str  # R: runs, or waits for a processor; D: waits for a disk; S: sleeps; T: is stopped; Z: has ended
    cpu_s: float


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int) -> list[Process]:
    """Return every living process below ``root``, in no order. Reads all of ``/proc``: a few milliseconds."""
    children: defaultdict[int, list[Process]] = defaultdict(list)
    for process in _all():
        children[process.parent].append(process)
    found, ahead = list[Process](), [root]
    while ahead:
        below = children.pop(ahead.pop(), [])
        found += [process for process in below if process.state != "Z"]
        ahead += [process.pid for process in below]
    return found


def _all() -> Iterator[Process]:
    if not Path("/proc/self/stat").exists():
        return
    for name in os.listdir("/proc"):  # noqa: PTH208 (a Path for each entry takes as long as reading it)
        if name.isdigit() and (process := look_at(int(name))) is not None:
            yield process


def look_at(pid: int) -> Process | None:
    """Return what the kernel says about ``pid``; None if it has ended, or there is no ``/proc``."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()  # a name may contain blanks and brackets
    except OSError:
        return None
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    return Process(pid, int(fields[1]), fields[0].decode(), cpu_s)


def busy(processes: list[Process], before: dict[int, float], elapsed_s: float) -> list[Process]:
    """Return those that want a processor, or used one in the last ``elapsed_s``. ``before``: ``cpu_s`` then, by pid."""
    return [p for p in processes if p.state in "RD" or p.cpu_s - before.get(p.pid, p.cpu_s) > BUSY * elapsed_s]


def is_another_program(pid: int) -> bool:
    """Return whether ``pid`` is no fork of ours, but a program that one of them started (a compiler, say)."""
    try:
        return Path(f"/proc/{pid}/exe").readlink() != Path("/proc/self/exe").readlink()
    except OSError:  # it has ended, or there is no /proc
        return False


def memory_of(pid: int) -> int:
    """Return the bytes in memory that ``pid`` has from no file. A fork has all of its parent's, until it writes to
    them.

    Files are left out: which of their pages a fork inherits is the kernel's choice, and nobody has to pay for them.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(("RssAnon:", "RssShmem:")))


def bytes_written(pid: int) -> int:
    """Return the bytes that ``pid``, and children that it waited for, have written to disks; 0 if unreadable."""
    try:
        text = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("write_bytes:")), 0)


def end_descendants(limit_s: float = 10.0, *, spared: int | None = None) -> dict[int, int]:
    """Kill every process below this one, but for ``spared``; return how each child of ours ended, by pid.

    Gives up when none has ended for ``limit_s``: a process that sleeps in the kernel cannot be killed, nor waited for.
    """
    ended: dict[int, int] = {}
    moved = time.monotonic()
    while time.monotonic() - moved < limit_s:
        try:
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                ended[reaped[0]] = reaped[1]
                moved = time.monotonic()
        except ChildProcessError:
            break
        living = [process for process in descendants(os.getpid()) if process.pid != spared]
        if not living and spared is not None:
            break
        for process in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.002)
    return ended


def end_marked(mark: str) -> None:
    """Kill every process that has ``mark`` in its environment: what a killed server left behind."""
    sought = mark.encode()
    for process in _all():
        try:
            inherited = sought in Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if inherited and process.pid != os.getpid():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)

"""One process of a job as the server sees it: where it writes, what it prints, how it ended, where it stood.

Special here: a stack is taken from outside, without the process's help: ``faulthandler`` writes it in a signal handler
that needs neither the GIL nor Python. If a strategy has taken that signal, a second one is sent. If it blocks both,
what the kernel knows of the process is reported.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verifier.forkserver import family
from verifier.forkserver.child import EXIT_OUR_FAULT, REASON
from verifier.forkserver.output import Output
from verifier.launcher import STACK_SIGNAL

STACK_WAIT_S = 2.0  # writing a stack takes a millisecond if a processor is free
OUTPUT_SHOWN = 4000


@dataclass
class Member:
    """One process of a job."""

    name: str
    folder: Path
    pid: int
    output: Output
    connection: socket.socket | None = None
    status: int | None = None  # as waitpid gives it
    ended: str | None = None  # "hung" or "stopped", and why: we ended it
    told: str | None = None  # why it ended, as reported by the code that ended it
    later: list[Path] = field(default_factory=list)  # the folders of the scenarios that it runs after its first

    @property
    def running(self) -> bool:
        return self.status is None

    def progress(self) -> int:
        return sum(_size(folder / "journal.jsonl") for folder in (self.folder, *self.later))

    def completed(self, number: int | None = None) -> bool:
        """Return whether its journal of scenario ``number`` (default: the last one begun) ends with "completed"."""
        folders = [self.folder, *self.later]
        if number is None:
            number = max(sum((folder / "journal.jsonl").exists() for folder in folders) - 1, 0)
        return '"status": "completed"' in _text(folders[number] / "journal.jsonl", last=500)

    def describe_end_of_act(self, number: int) -> dict[str, Any]:
        """Return what ``describe`` does, for a scenario after which it went on to the next."""
        board = _text((self.folder, *self.later)[number] / "board").rstrip("\0")
        return {**completed(self.name), "board": board, "output": self._printed() if number == 0 else None}

    def _printed(self) -> str | None:
        """Return what it printed in all of its scenarios; it is reported with the first."""
        return _text(self.folder / "output.txt", last=OUTPUT_SHOWN) or None

    def describe(self, number: int = 0, *, out_of_memory: bool) -> dict[str, Any]:
        """Return the entry in ``launch.json`` of its scenario ``number``, in which it ended."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        reason = _text(self.folder / REASON) if code == EXIT_OUR_FAULT else ""
        if code == -signal.SIGKILL and not self.ended and out_of_memory:
            reason = "the kernel killed it: this machine had run out of memory"
        return {
            "name": self.name,
            "ended": self.ended,
            "exit_code": code,
            "signal": signal.Signals(-code).name if code < 0 and not self.ended else None,
            "reason": self.told or reason or None,
            "board": _text((self.folder, *self.later)[number] / "board").rstrip("\0"),
            "stack": _text(self.folder / "stack.txt") or None,
            "output": self._printed() if number == 0 else None,
        }


def completed(name: str) -> dict[str, Any]:
    """Return ``Member.describe`` for a process that completed and has nothing else to report."""
    nothing = dict.fromkeys(("ended", "signal", "reason", "stack", "output"))
    return {**nothing, "name": name, "exit_code": 0, "board": ""}


def take_stacks(members: list[Member]) -> None:
    """Have every process write its threads' stacks, as far as possible."""
    silent = _ask(members, STACK_SIGNAL, STACK_WAIT_S)
    # The strategy handles or blocks that signal. faulthandler also answers to one that usually ends a process.
    for member in _ask(silent, signal.SIGABRT, STACK_WAIT_S / 4):
        with suppress(OSError):
            (member.folder / "stack.txt").write_text(_from_outside(member.pid), encoding="utf-8")


def _ask(members: list[Member], number: int, limit_s: float) -> list[Member]:
    """Send ``number`` to all and wait until each has written a stack; return those that have not."""
    for member in members:
        with suppress(ProcessLookupError):
            os.kill(member.pid, number)
    deadline, sizes = time.monotonic() + limit_s, dict[str, int]()
    while members and time.monotonic() < deadline:
        time.sleep(0.05)
        before, sizes = sizes, {m.name: _size(m.folder / "stack.txt") for m in members}
        if all(sizes[m.name] and sizes[m.name] == before.get(m.name) for m in members):
            return []
    return [m for m in members if not sizes.get(m.name)]


def _from_outside(pid: int) -> str:
    process = family.look_at(pid)
    state = {"R": "is running", "S": "sleeps", "D": "waits for a device", "T": "is stopped"}
    doing = state.get(process.state, "has ended") if process else "has ended"
    where = ""
    with suppress(OSError):
        where = Path(f"/proc/{pid}/wchan").read_text(encoding="ascii").strip("0\n")
    return f"no Python stack: the process does not answer to the signals that ask for it; it {doing} {where}".rstrip()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _text(path: Path, last: int = 20_000) -> str:
    try:
        if not path.is_file():  # a strategy may have put a pipe there, and opening that would wait
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - last))
            return file.read().decode("utf-8", errors="replace")
    except OSError:  # it was never written, or the strategy removed it
        return ""

"""The fork server's loop: take a job, fork its ranks and its reference, be their store, see each one to its end.

Special here: it is the only place that decides how a process *ended*. A rank exits, or is killed, or makes no
progress until the limit: then every rank's Python stack is taken, all are ended with everything they started, and
the answer names each. The server lives exactly as long as the socket to its owner: an owner that is killed takes
the server with it, and the kernel takes the ranks.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from verifier.forkserver.child import EXIT_COMPLETED, STACK_SIGNAL, fork
from verifier.forkserver.store import SocketStore, StoreServer
from verifier.forkserver.warmup import warm_up
from verifier.scenario import Scenario

STALL_LIMIT_S = 30.0  # no process of the job has written a line of its journal for this long: they hang
GRACE_AFTER_DEATH_S = 3.0  # once a rank has died, what the others may still take to notice and say so
TICK_S = 0.5


@dataclass
class Member:
    """One process of a job."""

    name: str
    folder: Path
    pid: int
    status: int | None = None  # as waitpid gives it
    ended: str | None = None  # hung, stopped: ended by us, and why
    connection: socket.socket | None = None

    @property
    def running(self) -> bool:
        return self.status is None

    def progress(self) -> int:
        journal = self.folder / "journal.jsonl"
        return journal.stat().st_size if journal.exists() else 0

    def describe(self) -> dict[str, Any]:
        assert self.status is not None
        code = os.waitstatus_to_exitcode(self.status)
        return {
            "name": self.name,
            "ended": self.ended,
            "exit_code": code,
            "signal": signal.Signals(-code).name if code < 0 and not self.ended else None,
            "board": _text(self.folder / "board").rstrip("\0"),
            "stack": _text(self.folder / "stack.txt") or None,
            "output": _text(self.folder / "output.txt", last=4000) or None,
        }


@dataclass
class Job:
    scenario: Scenario
    folder: Path
    deadline: float
    members: list[Member] = field(default_factory=list)
    store: StoreServer = field(default_factory=StoreServer)


class OwnerGone(Exception):
    """The process that asked for the job closed its socket."""


def serve(owner: socket.socket) -> None:
    """Answer jobs, one JSON line each, until ``owner`` closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business; it closes the socket
    warm_up()
    selector = selectors.DefaultSelector()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    selector.register(wake_read, selectors.EVENT_READ, "child")
    selector.register(owner, selectors.EVENT_READ, "owner")
    lines = owner.makefile("rw", encoding="utf-8", newline="\n")
    while line := lines.readline():
        order = json.loads(line)
        folder = Path(order["folder"])
        job = Job(Scenario.load(folder), folder, time.monotonic() + order["timeout_s"])
        try:
            _run(job, selector, wake_read)
        except OwnerGone:
            return
        lines.write(json.dumps({"members": [m.describe() for m in job.members]}) + "\n")
        lines.flush()


def _run(job: Job, selector: selectors.BaseSelector, wake: int) -> None:
    try:
        _start(job, selector)
        _watch(job, selector, wake)
    finally:
        for member in job.members:
            if member.connection is not None:
                _forget(selector, member.connection)
            _kill(member)
        while any(m.running for m in job.members):
            _reap(job, block=True)


def _start(job: Job, selector: selectors.BaseSelector) -> None:
    from verifier import worker

    scenario = job.scenario
    pairs = [socket.socketpair() for _ in range(scenario.world_size)]
    for rank, (ours, theirs) in enumerate(pairs):
        folder = job.folder / "subject" / f"rank{rank}"
        body = partial(_be_rank, worker.run_rank, scenario, rank, theirs, pairs, folder)
        pid = fork(folder, f"rank {rank}", scenario.seed * 1009 + rank, body)
        job.members.append(Member(f"rank {rank}", folder, pid, connection=ours))
    folder = job.folder / "reference" / "rank0"
    body = partial(worker.run_reference, scenario, folder)
    job.members.append(Member("reference", folder, fork(folder, "reference", scenario.seed, body)))
    for ours, theirs in pairs:
        theirs.close()
        selector.register(ours, selectors.EVENT_READ, "store")


def _be_rank(
    run: Callable[..., None],
    scenario: Scenario,
    rank: int,
    mine: socket.socket,
    pairs: list[tuple[socket.socket, socket.socket]],
    folder: Path,
) -> None:
    for pair in pairs:
        for end in pair:
            if end is not mine:
                end.close()
    run(scenario, rank, SocketStore(mine), folder)


def _watch(job: Job, selector: selectors.BaseSelector, wake: int) -> None:
    """Serve the store until every process has ended or must be ended."""
    seen, moved = -1, time.monotonic()
    while True:
        for key, _ in selector.select(TICK_S):
            if key.data == "owner":
                raise OwnerGone
            if key.data == "child":
                _drain(wake)
            else:
                _serve_store(job, selector, key.fileobj)
        _reap(job)
        if not any(m.running for m in job.members):
            return
        now, progress = time.monotonic(), sum(m.progress() for m in job.members)
        if progress != seen:
            seen, moved = progress, now
        limit = GRACE_AFTER_DEATH_S if _someone_failed(job) else STALL_LIMIT_S
        if now > job.deadline or now - moved > limit:
            _end_all(job, _why(job, now - moved))
            return


def _why(job: Job, idle_s: float) -> str:
    dead = [m.name for m in job.members if not m.running and m.status != EXIT_COMPLETED]
    return f"stopped: {', '.join(dead)} had died" if dead else f"hung: nothing happened for {idle_s:.0f} s"


def _someone_failed(job: Job) -> bool:
    """Has a rank ended without completing, while others still run?"""
    return any(not m.running and (m.status != EXIT_COMPLETED or not _completed(m)) for m in job.members)


def _completed(member: Member) -> bool:
    journal = member.folder / "journal.jsonl"
    return journal.exists() and b'"status": "completed"' in journal.read_bytes()[-400:]


def _end_all(job: Job, why: str) -> None:
    """Take every running process's stack, then end it with all that it started."""
    running = [m for m in job.members if m.running]
    for member in running:
        member.ended = why
        try:
            os.kill(member.pid, STACK_SIGNAL)
        except ProcessLookupError:
            continue
    time.sleep(0.3)  # writing a stack takes a millisecond; a process that cannot even do that is not waited for
    for member in running:
        _kill(member)


def _kill(member: Member) -> None:
    try:
        os.killpg(member.pid, signal.SIGKILL)  # also after its end: what it started may live on
    except (ProcessLookupError, PermissionError):
        return


def _reap(job: Job, *, block: bool = False) -> None:
    for member in job.members:
        if member.running:
            pid, status = os.waitpid(member.pid, 0 if block else os.WNOHANG)
            if pid:
                member.status = status


def _serve_store(job: Job, selector: selectors.BaseSelector, connection: Any) -> None:
    try:
        job.store.answer(connection)
    except (ConnectionError, OSError):
        _forget(selector, connection)


def _forget(selector: selectors.BaseSelector, connection: socket.socket) -> None:
    try:
        selector.unregister(connection)
    except (KeyError, ValueError):
        return
    connection.close()


def _drain(wake: int) -> None:
    try:
        while os.read(wake, 4096):
            pass
    except BlockingIOError:
        return


def _text(path: Path, last: int = 20_000) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - last))
        return file.read().decode("utf-8", errors="replace")

"""The fork server's loop: take a job, fork its ranks and its reference, be their store, see each one to its end.

Special here: it is the only place that decides how a process *ended*. A rank exits, or is killed, or makes no
progress until the limit, or takes more than it may: then every rank's Python stack is taken, all are ended with
everything they started, and the answer names each. The server lives exactly as long as the socket to its owner: an
owner that is killed takes the server with it, and the kernel takes the ranks.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from verifier.forkserver import family
from verifier.forkserver.child import fork
from verifier.forkserver.limits import Limits, oom_kills
from verifier.forkserver.member import Member, take_stacks
from verifier.forkserver.output import Output
from verifier.forkserver.ranks import be_rank
from verifier.forkserver.spawned import spawn
from verifier.forkserver.store import StoreServer
from verifier.forkserver.warmup import refuse_threads, warm_up
from verifier.forkserver.watch import TICK_S, Watch
from verifier.launcher import place_of
from verifier.scenario import Scenario

# A process that has Apple's libraries loaded cannot be forked safely.
START_METHOD = os.environ.get("LOCKSTEP_START_METHOD") or ("spawn" if sys.platform == "darwin" else "fork")
NOBODY_CAN_KILL_S = 10.0  # a process that sleeps in the kernel is not waited for any longer


@dataclass
class Job:
    scenario: Scenario
    folder: Path
    timeout_s: float
    limits: Limits
    scratch: Path
    members: list[Member] = field(default_factory=list)
    store: StoreServer = field(default_factory=StoreServer)

    def reap(self) -> None:
        """Note how processes ended. Orphans that were handed to us are buried, too."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self.note_end(*ended)

    def note_end(self, pid: int, status: int) -> None:
        for member in self.members:
            if member.pid == pid:
                member.status = status


class OwnerGone(Exception):
    """The process that asked for the job closed its socket."""


class Server:
    """One selector for all that may happen: a word from the owner, a child's end, a rank's request, a rank's output."""

    def __init__(self, owner: socket.socket) -> None:
        self._owner = owner
        self._selector = selectors.DefaultSelector()
        self._wake, wake_write = os.pipe()
        for end in (self._wake, wake_write):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._own = [owner.fileno(), self._wake, wake_write]
        if hasattr(self._selector, "fileno"):
            self._own.append(self._selector.fileno())
        self._selector.register(self._wake, selectors.EVENT_READ, self._drain)
        self._selector.register(owner, selectors.EVENT_READ, self._owner_is_gone)

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order; say how each process ended.

        Raises OwnerGone; nothing is left running then, either.
        """
        folder = Path(order["folder"])
        limits, scratch = Limits(**order["limits"]).here(folder), Path(order["scratch"])
        job = Job(Scenario.load(folder), folder, order["timeout_s"], limits, scratch)
        kills_before = oom_kills()
        try:
            self._start(job)
            self._watch(job)
        finally:
            self._end(job)
        out_of_memory = oom_kills() > kills_before
        return {"members": [m.describe(out_of_memory=out_of_memory) for m in job.members], "limits": limits._asdict()}

    def _start(self, job: Job) -> None:
        pairs = [socket.socketpair() for _ in range(job.scenario.world_size)]
        for rank in [*range(job.scenario.world_size), None]:
            self._start_one(job, rank, pairs)
        for ours, theirs in pairs:
            theirs.close()
            ours.settimeout(TICK_S)  # a rank that stops in the middle of a request does not stop us
            self._selector.register(ours, selectors.EVENT_READ, partial(self._serve_store, job, ours))

    def _start_one(self, job: Job, rank: int | None, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
        """Rank ``rank``; None: the reference."""
        scenario = job.scenario
        name = "reference" if rank is None else f"rank {rank}"
        folder, seed = job.folder / place_of(name), scenario.seed if rank is None else scenario.seed * 1009 + rank
        ours, theirs = (None, None) if rank is None else pairs[rank]
        if START_METHOD == "spawn":
            pid, printed = spawn(folder, name, seed, job.folder, rank, theirs, limits=job.limits, scratch=job.scratch)
        else:
            from verifier import reference

            body: Callable[[], None] = partial(reference.run_reference, scenario, folder)
            if rank is not None and theirs is not None:
                body = partial(be_rank, scenario, rank, theirs, folder)
            others = [end.fileno() for pair in pairs for end in pair if end is not theirs]
            foreign = [*self._own, *others, *(member.output.descriptor for member in job.members)]
            pid, printed = fork(folder, name, seed, body, limits=job.limits, scratch=job.scratch, foreign=foreign)
        output = Output(printed, folder / "output.txt", int(job.limits.output_mib * 2**20))
        job.members.append(Member(name, folder, pid, output, ours))
        self._selector.register(printed, selectors.EVENT_READ, partial(self._read_output, output))

    def _watch(self, job: Job) -> None:
        """Serve until every process has ended or must be ended."""
        watch = Watch(job.members, job.limits, job.timeout_s)
        while True:
            for key, _ in self._selector.select(TICK_S):
                key.data()
            job.reap()
            running = [member for member in job.members if member.running]
            if not running:
                return
            why = watch.look()
            if why is None:
                continue
            if why:
                for member in running:
                    member.ended = why
                if watch.in_a_hurry:
                    return
                take_stacks(running)
            return

    def _end(self, job: Job) -> None:
        """Leave nothing of the job: no process, no connection, no temporary file."""
        for member in job.members:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(member.pid, signal.SIGKILL)  # also after its end: what it started may live on
        for pid, status in family.end_descendants(NOBODY_CAN_KILL_S).items():
            job.note_end(pid, status)
        for member in job.members:
            if member.status is None:
                member.status = signal.SIGKILL
            if member.connection is not None:
                self._forget(member.connection)
                member.connection.close()
            self._forget(member.output.descriptor)
            member.output.close()
        shutil.rmtree(job.scratch, ignore_errors=True)

    def _owner_is_gone(self) -> None:
        raise OwnerGone  # it says nothing while a job runs: this can only be the end of its socket

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake, 4096):
                pass

    def _serve_store(self, job: Job, connection: socket.socket) -> None:
        try:
            job.store.answer(connection)
        except Exception:  # it has ended, or sent something that is no request: it gets no answers any more
            self._forget(connection)
            connection.close()

    def _read_output(self, output: Output) -> None:
        if not output.read():
            self._forget(output.descriptor)

    def _forget(self, thing: Any) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(thing)


def serve(owner: socket.socket) -> None:
    """Answer jobs, one JSON line each, until ``owner`` closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business; it closes the socket
    family.adopt_orphans()
    if START_METHOD == "fork":
        warm_up()
    server = Server(owner)
    lines = owner.makefile("rw", encoding="utf-8", newline="\n")
    while line := lines.readline():
        if START_METHOD == "fork":
            refuse_threads()
        try:
            answer = server.run(json.loads(line))
        except OwnerGone:
            return
        lines.write(json.dumps(answer) + "\n")
        lines.flush()

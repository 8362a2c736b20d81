"""The fork server's loop: take a job, fork its ranks and its reference, be their store, see each one to its end.

Special here: only this file decides how a process *ended*. If a rank exits, is killed, makes no progress until the
limit, or takes more than it may, then every rank's Python stack is taken, all are ended with everything they started,
and the answer names each. The server lives exactly as long as the socket to its owner: an owner that is killed takes
the server with it, and the kernel takes the ranks.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from verifier.files import UNKEPT
from verifier.forkserver import family
from verifier.forkserver.ahead import MOST_WAITING, Role, Waiting, fork_ahead
from verifier.forkserver.limits import Limits, oom_kills
from verifier.forkserver.member import Member, completed, take_stacks
from verifier.forkserver.output import Output
from verifier.forkserver.references import References, receive_seals
from verifier.forkserver.spawned import spawn
from verifier.forkserver.store import StoreServer
from verifier.forkserver.warmup import import_the_rest, import_what_of_torch, refuse_threads, warm_up
from verifier.forkserver.watch import TICK_S, Watch
from verifier.launcher import place_of
from verifier.scenario import Scenario

# A process that has Apple's libraries loaded cannot be forked safely.
START_METHOD = os.environ.get("LOCKSTEP_START_METHOD") or ("spawn" if sys.platform == "darwin" else "fork")
DEPTH = 5  # how deep, at most, ranks write in the folder of a run, or of several strategies' runs
NOBODY_CAN_KILL_S = 10.0  # a process that sleeps in the kernel is not waited for any longer


@dataclass
class Job:
    scenarios: list[Scenario]  # one, or several that the same processes run one after the other
    folders: list[Path]
    timeout_s: float
    limits: Limits
    scratch: Path
    members: list[Member] = field(default_factory=list)
    reference_is_here: bool = False  # kept from an earlier job: no process has to be the reference
    store: StoreServer = field(default_factory=StoreServer)

    def reap(self) -> None:
        """Note how processes ended. Orphans that were handed to us are reaped, too."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self.note_end(*ended)

    def note_end(self, pid: int, status: int) -> None:
        for member in self.members:
            if member.pid == pid:
                member.status = status

    def describe(self, *, out_of_memory: bool) -> Iterator[dict[str, Any]]:
        """Yield the content of ``launch.json``, for the first scenario and for each later one that all members
        completed.

        A later one that some member did not complete is left out: it must be run again, in processes of its own.
        """
        for number in range(len(self.folders)):
            through = all(member.completed(number) for member in self.members)
            given = [completed("reference")] if self.reference_is_here else []
            if through and number < len(self.folders) - 1:
                yield {"members": [member.describe_end_of_act(number) for member in self.members] + given}
                continue
            if not number or (through and all(member.status == 0 and not member.ended for member in self.members)):
                yield {
                    "members": [member.describe(number, out_of_memory=out_of_memory) for member in self.members] + given
                }
            return


class OwnerGone(Exception):
    """The process that asked for the job closed its socket."""


class Server:
    """One selector for all events: a message from the owner, a child's end, a rank's request, a rank's output."""

    def __init__(self, owner: socket.socket) -> None:
        self._owner = owner
        self._selector = selectors.DefaultSelector()
        self._references = References()
        self._waiting: list[Waiting] = []
        self._wake, wake_write = os.pipe()
        for end in (self._wake, wake_write):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._written: Path | None = None  # where the last job wrote
        self._own = [owner.fileno(), self._wake, wake_write]
        if hasattr(self._selector, "fileno"):
            self._own.append(self._selector.fileno())
        self._selector.register(self._wake, selectors.EVENT_READ, self._drain)
        self._selector.register(owner, selectors.EVENT_READ, self._owner_is_gone)

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order; return how each process ended, for each of its scenarios (``describe``).

        Raises OwnerGone; nothing is left running then, either.
        """
        folders = [Path(folder) for folder in order["folders"]]
        limits, scratch = Limits(**order["limits"]).here(folders[0]), Path(order["scratch"])
        job = Job([Scenario.load(folder) for folder in folders], folders, order["timeout_s"], limits, scratch)
        self.strategy = job.scenarios[0].strategy
        self._written = folders[0]
        kills_before = oom_kills()
        try:
            self._start(job)
            self._watch(job)
        finally:
            self._end(job)
        out_of_memory = oom_kills() > kills_before
        return {"acts": list(job.describe(out_of_memory=out_of_memory)), "limits": limits._asdict()}

    def _start(self, job: Job) -> None:
        world_size = job.scenarios[0].world_size
        alone = [folder / place_of("reference") for folder in job.folders]
        job.reference_is_here = self._references.give(job.scenarios, alone)
        for rank in range(world_size):
            self._start_one(job, rank)
        if not job.reference_is_here:
            self._start_one(job, None)
        self._end_waiting()

    def _start_one(self, job: Job, rank: int | None) -> None:
        """Start rank ``rank``; None: the reference."""
        name, seed = "reference" if rank is None else f"rank {rank}", job.scenarios[0].seed
        seed = seed if rank is None else seed * 1009 + rank
        folders = [folder / place_of(name) for folder in job.folders]
        if START_METHOD == "spawn" or (job.scenarios[0].own_interpreters and rank is not None):
            one = spawn(folders, name, seed, job.folders, rank, limits=job.limits, scratch=job.scratch)
        else:
            one = self._waiting_one(job)
            one.begin(Role(rank, job.scenarios, folders, name, seed, job.limits, job.scratch))
        output = Output(one.printed, folders[0] / "output.txt", int(job.limits.output_mib * 2**20))
        job.members.append(Member(name, folders[0], one.pid, output, one.connection, later=folders[1:]))
        self._selector.register(one.printed, selectors.EVENT_READ, partial(self._read_output, output))
        if rank is not None:
            one.connection.settimeout(TICK_S)  # a rank that stops in the middle of a request does not stop the server
            self._selector.register(
                one.connection, selectors.EVENT_READ, partial(self._serve_store, job, one.connection)
            )

    def _waiting_one(self, job: Job) -> Waiting:
        while self._waiting:
            if (one := self._waiting.pop()).alive():
                return one
            one.end()
        taken = [d for m in job.members for d in (m.output.descriptor, m.connection.fileno() if m.connection else -1)]
        return fork_ahead([*self._own, *taken], rehearsed=False)

    def remove_unkept(self) -> None:
        """Remove what was written for the owner alone; called when the owner is gone, for whatever reason."""
        parents = [] if self._written is None else list(self._written.parents)[:DEPTH]
        for folder in (parent for parent in parents if parent.name.startswith(UNKEPT)):
            shutil.rmtree(folder, ignore_errors=True)

    def fork_ahead(self, num_ranks: int) -> None:
        """Have ``num_ranks`` processes wait for the next job."""
        if START_METHOD == "spawn":
            return
        refuse_threads()
        while len(self._waiting) < min(num_ranks, MOST_WAITING):
            taken = [d for one in self._waiting for d in (one.connection.fileno(), one.printed)]
            self._waiting.append(fork_ahead([*self._own, *taken], rehearsed=True))

    def _end_waiting(self) -> None:
        while self._waiting:
            self._waiting.pop().end()

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
                os.killpg(member.pid, signal.SIGKILL)  # even if it has ended: what it started may live on
        for pid, status in family.end_descendants(NOBODY_CAN_KILL_S).items():
            job.note_end(pid, status)
        self._keep_references(job)
        for member in job.members:
            if member.status is None:
                member.status = signal.SIGKILL
            if member.connection is not None:
                self._forget(member.connection)
                member.connection.close()
            self._forget(member.output.descriptor)
            member.output.close()
        shutil.rmtree(job.scratch, ignore_errors=True)

    def _keep_references(self, job: Job) -> None:
        alone = next((m for m in job.members if m.name == "reference" and m.connection and m.status == 0), None)
        if alone is not None and alone.connection is not None:
            seals = receive_seals(alone.connection)
            for scenario, folder, seal in zip(job.scenarios, (alone.folder, *alone.later), seals, strict=False):
                self._references.keep(scenario, folder, seal)

    def _owner_is_gone(self) -> None:
        raise OwnerGone  # the owner sends nothing while a job runs, so this is the end of its socket

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake, 4096):
                pass

    def _serve_store(self, job: Job, connection: socket.socket) -> None:
        try:
            job.store.answer(connection)
        except Exception:  # it has ended, or sent something that is no request: it gets no more answers
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
    try:
        _answer_all(server, owner)
    finally:
        server.remove_unkept()


def _answer_all(server: Server, owner: socket.socket) -> None:
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
        if START_METHOD == "fork":
            import_what_of_torch(server.strategy)
            import_the_rest()
        with suppress(OSError):  # then they are forked when they are needed
            server.fork_ahead(len(answer["acts"][0]["members"]) - 1)

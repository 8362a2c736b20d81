"""Processes that are forked ahead of time, and get their role later: a rank, or the reference.

Special here: a fork takes as long as a small training step, so the server forks while its owner is busy with the last
answer. A waiting process has torch loaded, and nothing of any job: it was forked from the server like all others. It
uses no processor while it waits, and ends with the server.
"""

from __future__ import annotations

import os
import signal
import socket
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from verifier.forkserver.child import EXIT_OUR_FAULT, die_with_parent, live
from verifier.forkserver.limits import Limits
from verifier.forkserver.ranks import be_rank, be_reference
from verifier.forkserver.store import receive, send
from verifier.forkserver.warmup import rehearse
from verifier.scenario import Scenario

MOST_WAITING = 8  # for the next job of the same size; a larger job forks the rest when it begins


class Role(NamedTuple):
    """What a process is to do. ``rank`` None: it is the reference."""

    rank: int | None
    scenarios: list[Scenario]
    folders: list[Path]  # where it writes, for each scenario
    name: str
    seed: int
    limits: Limits
    scratch: Path


@dataclass
class Waiting:
    """One waiting process, as the server sees it."""

    pid: int
    connection: socket.socket  # to send it its role, and later to answer its requests as a rank
    printed: int  # the descriptor from which to read what it prints

    def alive(self) -> bool:
        with suppress(ChildProcessError):
            return os.waitpid(self.pid, os.WNOHANG)[0] == 0
        return False

    def begin(self, role: Role) -> None:
        role.folders[0].mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # it has just ended: the watch will report that
            send(self.connection, tuple(role))

    def end(self) -> None:
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.connection.close()
        os.close(self.printed)


def fork_ahead(foreign: Iterable[int], *, rehearsed: bool) -> Waiting:
    """Fork a process that waits for its role; it closes ``foreign`` descriptors, and may ``rehearse`` meanwhile."""
    server = os.getpid()
    ours, theirs = socket.socketpair()
    printed, output = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        for descriptor in (ours.detach(), theirs.detach(), printed, output):
            os.close(descriptor)
        raise
    if not pid:
        _wait(server, theirs, output, [ours.fileno(), printed, *foreign], rehearsed)
    theirs.close()
    os.close(output)
    return Waiting(pid, ours, printed)


def _wait(server: int, connection: socket.socket, output: int, foreign: Iterable[int], rehearsed: bool) -> NoReturn:
    try:
        die_with_parent(server)
        for descriptor in foreign:
            os.close(descriptor)
        if rehearsed:
            with suppress(Exception):  # then the pages are copied later
                rehearse()
        role = Role(*receive(connection))
    except ConnectionError:  # it was never needed
        os._exit(0)
    except BaseException:
        os.dup2(output, 2)
        traceback.print_exc()
        os._exit(EXIT_OUR_FAULT)
    body = partial(be_reference, role.scenarios, connection, role.folders)
    if role.rank is not None:
        body = partial(be_rank, role.scenarios, role.rank, connection, role.folders)
    live(server, role.folders[0], role.name, role.seed, body, output=output, limits=role.limits, scratch=role.scratch)

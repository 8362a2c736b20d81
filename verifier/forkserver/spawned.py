"""A rank, or the reference, as a fresh process, where a process that has torch loaded must not be forked (macOS).

Special here: the first moments are those of a forked child (``child.live``); only how it comes to life differs, and
that every rank pays for loading torch. ``LOCKSTEP_START_METHOD`` (fork, spawn) says which; on Linux it is fork.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from verifier.forkserver.child import live
from verifier.forkserver.limits import Limits
from verifier.scenario import Scenario

FOLLOW_S = 0.5


def spawn(
    folder: Path, name: str, seed: int, job: Path, rank: int | None, connection: socket.socket | None,
    *, limits: Limits, scratch: Path,
) -> tuple[int, int]:  # fmt: skip
    """Start a process for ``rank`` (None: the reference) of the scenario in ``job``.

    Returns its pid and where to read what it prints.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ours, theirs = os.pipe()
    passed = [theirs, *([connection.fileno()] if connection is not None else [])]
    told = {
        "server": os.getpid(),
        "folder": str(folder),
        "name": name,
        "seed": seed,
        "job": str(job),  # where the scenario lies: with sent source it is too long for a command line
        "rank": rank,
        "passed": passed,
        "limits": limits._asdict(),
        "scratch": str(scratch),
    }
    for descriptor in passed:
        os.set_inheritable(descriptor, True)
    words = [sys.executable, "-m", "verifier.forkserver.spawned", json.dumps(told)]
    pid = os.posix_spawn(sys.executable, words, os.environ)
    for descriptor in passed:
        os.set_inheritable(descriptor, False)
    os.close(theirs)
    return pid, ours


def main() -> None:
    told: dict[str, Any] = json.loads(sys.argv[1])
    from verifier import reference
    from verifier.forkserver.ranks import be_rank

    scenario, rank, folder = Scenario.load(Path(told["job"])), told["rank"], Path(told["folder"])
    output, *connections = told["passed"]
    for descriptor in told["passed"]:
        os.set_inheritable(descriptor, False)
    if rank is None:
        body = partial(reference.run_reference, scenario, folder)
    else:
        body = partial(be_rank, scenario, rank, socket.socket(fileno=connections[0]), folder)
    threading.Thread(target=_follow, args=(told["server"],), daemon=True).start()
    limits, scratch = Limits(**told["limits"]), Path(told["scratch"])
    live(told["server"], folder, told["name"], told["seed"], body, output=output, limits=limits, scratch=scratch)


def _follow(server: int) -> None:
    """Where the kernel does not end a child with its parent, look now and then."""
    with suppress(BaseException):
        while os.getppid() == server:
            time.sleep(FOLLOW_S)
    os._exit(1)


if __name__ == "__main__":
    main()

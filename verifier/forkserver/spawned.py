"""A rank, or the reference, as a fresh process, where a process that has torch loaded must not be forked (macOS).

Special here: the first moments are those of a forked child (``child.live``). Only its start differs, and every rank
pays for loading torch. ``LOCKSTEP_START_METHOD`` (fork, spawn) says which; on Linux it is fork.
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

from verifier.forkserver.ahead import Waiting
from verifier.forkserver.child import live
from verifier.forkserver.limits import Limits
from verifier.scenario import Scenario

FOLLOW_S = 0.5


def spawn(
    folders: list[Path], name: str, seed: int, jobs: list[Path], rank: int | None, *, limits: Limits, scratch: Path
) -> Waiting:
    """Start a process for ``rank`` (None: the reference) of the scenarios in ``jobs``; it writes into ``folders``."""
    folders[0].mkdir(parents=True, exist_ok=True)
    printed, output = os.pipe()
    ours, theirs = socket.socketpair()
    passed = [output, theirs.fileno()]
    told = {
        "server": os.getpid(),
        "folders": [str(folder) for folder in folders],
        "name": name,
        "seed": seed,
        "jobs": [str(job) for job in jobs],  # where scenarios lie: with sent source they are too long to be passed
        "rank": rank,
        "passed": passed,
        "limits": limits._asdict(),
        "scratch": str(scratch),
    }
    for descriptor in passed:
        os.set_inheritable(descriptor, True)
    words = [sys.executable, "-m", "verifier.forkserver.spawned", json.dumps(told)]
    # Sets have another order on each rank, as in fresh interpreters, but the same again when the run is repeated.
    environment = {"PYTHONHASHSEED": str(seed % 2**32), **os.environ}
    pid = os.posix_spawn(sys.executable, words, environment)
    for descriptor in passed:
        os.set_inheritable(descriptor, False)
    os.close(output)
    theirs.close()
    return Waiting(pid, ours, printed)


def main() -> None:
    told: dict[str, Any] = json.loads(sys.argv[1])
    from verifier.forkserver.ranks import be_rank, be_reference

    scenarios, rank = [Scenario.load(Path(job)) for job in told["jobs"]], told["rank"]
    folders = [Path(folder) for folder in told["folders"]]
    output, connection = told["passed"]
    for descriptor in told["passed"]:
        os.set_inheritable(descriptor, False)
    ours = socket.socket(fileno=connection)
    body = partial(be_reference, scenarios, ours, folders)
    if rank is not None:
        body = partial(be_rank, scenarios, rank, ours, folders)
    threading.Thread(target=_follow, args=(told["server"],), daemon=True).start()
    limits, scratch = Limits(**told["limits"]), Path(told["scratch"])
    live(told["server"], folders[0], told["name"], told["seed"], body, output=output, limits=limits, scratch=scratch)


def _follow(server: int) -> None:
    """Exit when the server has ended; needed where the kernel does not end a child with its parent."""
    with suppress(BaseException):
        while os.getppid() == server:
            time.sleep(FOLLOW_S)
    os._exit(1)


if __name__ == "__main__":
    main()

"""What a child of the fork server does when it is a rank: the environment of one, and the store to meet at."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from verifier.forkserver.store import SocketStore
from verifier.scenario import Scenario


def be_rank(scenario: Scenario, rank: int, connection: socket.socket, folder: Path) -> None:
    from verifier import worker

    # What torchrun would say; strategies read it to choose a device or to print on one rank only.
    for name, value in (("RANK", rank), ("WORLD_SIZE", scenario.world_size)):
        os.environ[name] = os.environ["LOCAL_" + name] = str(value)
    worker.run_rank(scenario, rank, SocketStore(connection), folder)

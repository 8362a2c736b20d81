"""What a child of the fork server runs: a rank, with its environment and its store, or the reference."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from verifier import devices
from verifier.forkserver.references import send_seals
from verifier.forkserver.store import SocketStore
from verifier.nodes import place
from verifier.scenario import Scenario


def be_rank(scenarios: list[Scenario], rank: int, connection: socket.socket, folders: list[Path]) -> None:
    from verifier.run import acts

    os.environ.update(place(scenarios[0], rank, devices.num_gpus(scenarios[0])))
    devices.settle(scenarios[0])
    acts.play(scenarios, rank, SocketStore(connection), folders)


def be_reference(scenarios: list[Scenario], connection: socket.socket, folders: list[Path]) -> None:
    from verifier.run import acts

    devices.settle(scenarios[0])
    send_seals(connection, acts.play_references(scenarios, folders))

"""What the single process wrote, kept for the next time that the same is asked: it does not depend on the strategy.

Special here: a strategy may write into the folder that a reference lies in. So what is kept has to bear the seals
(``appending``) that the reference's process sent over a connection of its own, and what one run did to its folder
reaches no other run.
"""

from __future__ import annotations

import json
import socket
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from verifier import lines
from verifier.scenario import Scenario

MOST_BYTES = 64 * 2**20  # of all that is kept; what was used last stays
_FILES = ("journal.jsonl", "blobs.bin")
# Of a scenario, what the single process never looks at.
_OF_THE_RANKS = {"name", "strategy", "fault", "driver", "timeout_s", "needs", "only_if_claimed", "judged_by"}

Seals = dict[str, Any]


def send_seals(connection: socket.socket, seals: Sequence[Seals]) -> None:
    with suppress(OSError):  # nobody keeps it
        connection.sendall(json.dumps(seals).encode() + b"\n")


def receive_seals(connection: socket.socket) -> list[Seals]:
    """What ``send_seals`` sent; nothing if it was not sent, or not to its end. Does not wait."""
    received = b""
    with suppress(OSError):
        connection.setblocking(False)
        while piece := connection.recv(1 << 16):
            received += piece
    seals: list[Seals] = json.loads(received) if received.endswith(b"\n") else []
    return seals


class References:
    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[bytes, ...]] = OrderedDict()

    def give(self, scenarios: Sequence[Scenario], folders: Sequence[Path]) -> bool:
        """Write the reference of each scenario into its folder. False: not all are here, and none is written."""
        keys = [_key(scenario) for scenario in scenarios]
        if not all(key in self._kept for key in keys):
            return False
        for key, folder in zip(keys, folders, strict=True):
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in zip(_FILES, self._kept[key], strict=True):
                (folder / name).write_bytes(content)
            self._kept.move_to_end(key)
        return True

    def keep(self, scenario: Scenario, folder: Path, seals: Seals) -> None:
        """Keep what lies in ``folder``, if it completed and nobody but the process that sent ``seals`` wrote it."""
        try:
            journal, blobs = ((folder / name).read_bytes() for name in _FILES)
        except OSError:
            return
        end = next((event for event in lines.events(journal) if event["kind"] == "outcome"), {})
        if end.get("status") != "completed" or end.get("seals") != seals:
            return
        if not lines.intact(journal, memoryview(blobs), seals):
            return
        self._kept[_key(scenario)] = (journal, blobs)
        while sum(len(content) for kept in self._kept.values() for content in kept) > MOST_BYTES:
            self._kept.popitem(last=False)


def _key(scenario: Scenario) -> str:
    return scenario.model_dump_json(exclude=_OF_THE_RANKS)

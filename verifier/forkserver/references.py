"""What the single process wrote, kept for the next equal request: it does not depend on the strategy.

Special here: a strategy may write into the folder that a reference lies in. So a reference is kept only if it bears the
seals (``appending``) that its process sent over its own connection. So no run can affect another run's reference.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from verifier import lines
from verifier.appending import is_sealed_by
from verifier.scenario import Scenario

MOST_BYTES = 64 * 2**20  # of all that is kept; the least recently used is dropped first
LARGEST_BYTES = 16 * 2**20  # of one: reading it takes as long as the run that wrote it
LONGEST_OUTCOME = 4096
_FILES = ("journal.jsonl", "blobs.bin")
# The fields of a scenario that the single process never reads.
_OF_THE_RANKS = {"name", "strategy", "fault", "driver", "timeout_s", "needs", "only_if_claimed", "judged_by",
                 "own_interpreters", "several_nodes", "beside", "stepped_first", "own_saves"}  # fmt: skip

Seals = dict[str, Any]


def send_seals(connection: socket.socket, seals: Sequence[Seals]) -> None:
    with suppress(OSError):  # the reader does not keep the reference
        connection.sendall(json.dumps(seals).encode() + b"\n")


def receive_seals(connection: socket.socket) -> list[Seals]:
    """Return what ``send_seals`` sent, or nothing if it was not sent, or not completely. Does not wait."""
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
        with suppress(Exception):  # anything may lie there now: it is then not kept
            sizes = [int(seals[part][0]) for part in ("lines", "blobs")]
            if sum(sizes) > LARGEST_BYTES:
                return
            journal = _read(folder / "journal.jsonl", sizes[0] + LONGEST_OUTCOME)
            blobs = _read(folder / "blobs.bin", sizes[1])
            if not is_sealed_by(seals["lines"], journal[: sizes[0]]) or not is_sealed_by(seals["blobs"], blobs):
                return
            (end,) = lines.events(journal[sizes[0] :])
            if (end["kind"], end["status"], end["seals"]) != ("outcome", "completed", seals):
                return
            self._kept[_key(scenario)] = (journal, blobs)
            while sum(len(content) for kept in self._kept.values() for content in kept) > MOST_BYTES:
                self._kept.popitem(last=False)


def _read(path: Path, most: int) -> bytes:
    """Return the content of a plain file of at most ``most`` bytes; b"" for anything else, without waiting for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123
        status = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= most else b""


def _key(scenario: Scenario) -> str:
    return scenario.model_dump_json(exclude=_OF_THE_RANKS)

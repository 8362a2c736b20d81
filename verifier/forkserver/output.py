"""What a process prints: read from a pipe; the beginning and the end are kept, the middle is counted and dropped.

Special here: a strategy may print gigabytes. It is neither stopped for that nor slowed down by more than the pipe, and
the disk does not fill.
"""

from __future__ import annotations

import os
from pathlib import Path

_PIECE = 1 << 16


class Output:
    """The reading end of one process's stdout and stderr, and the file that it goes to."""

    def __init__(self, descriptor: int, path: Path, keep: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor, self._path = descriptor, path
        self._room = self._half = max(keep // 2, _PIECE)
        self._tail = b""
        self._dropped = 0

    def read(self) -> bool:
        """Read what is there now. Return False if no process has the writing end open any more."""
        for _ in range(16):  # at most a megabyte at a time: other events must be served, too
            try:
                piece = os.read(self.descriptor, _PIECE)
            except BlockingIOError:
                return True
            if not piece:
                return False
            self._keep(piece)
        return True

    def _keep(self, piece: bytes) -> None:
        if self._room:
            self._append(piece[: self._room])
            piece, self._room = piece[self._room :], max(self._room - len(piece), 0)
        self._tail += piece
        if len(self._tail) > 2 * self._half:
            self._dropped += len(self._tail) - self._half
            self._tail = self._tail[-self._half :]

    def close(self) -> None:
        """Read what is left, and write the kept end to the file."""
        self.read()
        os.close(self.descriptor)
        if len(self._tail) > self._half:
            self._dropped += len(self._tail) - self._half
            self._tail = self._tail[-self._half :]
        if self._dropped:
            self._append(f"\n... {self._dropped} bytes left out ...\n".encode())
        self._append(self._tail)

    def _append(self, data: bytes) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(data)
        except OSError:  # the strategy removed the folder, or the disk is full: the output is lost
            return

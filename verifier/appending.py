"""A file that one process only ever appends to, whatever the strategy beside it does to descriptors and modules.

Special here: the functions that write are bound on import, before a strategy can replace ``os.write``. If the
descriptor was closed, or now belongs to another file, the file is opened again. A copy of the process (``os.fork``)
that comes here is ended, because two processes would write one recording. ``seal`` returns how much was written and
its digest, so that lines that somebody else wrote or removed show when the file is read. A strategy's thread may still
be at work then: what it would append is dropped, unless it is ``late`` on purpose.
"""

from __future__ import annotations

import errno
import os
import threading
from os import _exit, fstat, getpid
from os import open as _open
from os import write as _write
from pathlib import Path

import xxhash

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class AppendedFile:
    """A file that stays open for the life of a process."""

    def __init__(self, path: Path) -> None:
        self._path, self._pid = path, getpid()
        self._lock = threading.RLock()
        self._digest = xxhash.xxh3_64()
        self._sealed = False
        self._open()
        self.size = fstat(self._descriptor).st_size

    def _open(self) -> None:
        self._descriptor = _open(self._path, _FLAGS, 0o644)
        self._identity = _identity(self._descriptor)

    def append(self, data: bytes | memoryview, *, late: bool = False) -> int:
        """Append ``data``; return where it begins. Once the file is sealed, only what is ``late`` is appended."""
        if getpid() != self._pid:
            _exit(0)
        with self._lock:
            if self._sealed and not late:
                return self.size
            if _identity(self._descriptor) != self._identity:
                self._open()
            start = self.size
            self._digest.update(data)
            self.size += len(data)
            left = memoryview(data)
            while left:
                left = left[_write(self._descriptor, left) :]
            return start

    def seal(self) -> list[int | str]:
        """Return how many bytes this process has appended, and their digest; little is appended from here on."""
        with self._lock:
            self._sealed = True
            return [self.size, self._digest.hexdigest()]


def is_sealed_by(seal: list[int | str] | None, data: bytes | memoryview) -> bool:
    """Return whether ``data`` is exactly what had been written when ``seal`` was made."""
    return seal == [len(data), xxhash.xxh3_64_hexdigest(data)]


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        status = fstat(descriptor)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        return None
    return status.st_dev, status.st_ino

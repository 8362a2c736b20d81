"""Lists the files of a run, and opens one of them by name.

Special here: ranks may have written anything, including links to other places. A name is walked part by part from the
run's own directory, each part opened without following links (``O_NOFOLLOW``, relative to the one before), so nothing
can change between a check and its use. Only regular files are ever read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MOST_LISTED = 10_000
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Artifact:
    """A regular file; ``path`` is relative to the run's directory, with slashes."""

    path: str
    num_bytes: int


def listed(folder: Path) -> list[Artifact]:
    """The regular files below ``folder``, by name; links are left out, and not followed."""
    found: list[Artifact] = []
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(root, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.append(Artifact(path.relative_to(folder).as_posix(), status.st_size))
            if len(found) == MOST_LISTED:
                return found
    return found


def opened(folder: Path, name: str) -> tuple[BinaryIO, int] | None:
    """``name`` below ``folder``, and its size in bytes; None: there is no such file."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        return None
    descriptor = -1
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        for part in parts[:-1]:
            descriptor = _step(descriptor, part, os.O_DIRECTORY)
        descriptor = _step(descriptor, parts[-1], os.O_NONBLOCK)  # opening a pipe without a writer would block
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return None
    except (OSError, ValueError):  # ValueError: a name that cannot be a file's
        return None
    return os.fdopen(descriptor, "rb"), status.st_size


def _step(folder: int, part: str, flags: int) -> int:
    try:
        return os.open(part, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=folder)
    finally:
        os.close(folder)


def read(file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    """Yield at most ``num_bytes`` bytes, the announced length, even if the file grows.

    It takes a file and not its descriptor: if the client leaves before the first byte is read, this code never runs,
    but Python closes the file when it is no longer referenced.
    """
    with file:
        while num_bytes and (chunk := file.read(min(_CHUNK, num_bytes))):
            num_bytes -= len(chunk)
            yield chunk

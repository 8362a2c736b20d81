"""The files that a run has left, and how one of them is opened for somebody who names it.

Special here: what ranks wrote may be anything, links to other places among it. A name is walked part by part from the
run's own directory, each opened without following links (``O_NOFOLLOW``, relative to the one before), so there is no
moment between a check and its use; and nothing but a regular file is ever read from.
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
    """The regular files below ``folder``, by name; links and what is behind them are left out."""
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
        descriptor = _step(descriptor, parts[-1], os.O_NONBLOCK)  # a pipe without a writer would be waited for
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return None
    except (OSError, ValueError):  # ValueError: a name that no file system takes
        return None
    return os.fdopen(descriptor, "rb"), status.st_size


def _step(folder: int, part: str, flags: int) -> int:
    try:
        return os.open(part, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=folder)
    finally:
        os.close(folder)


def read(file: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    """As many bytes as were announced, and no more, should the file grow.

    Takes a file and not its descriptor: a client may be gone before the first byte is asked for, and then nothing in
    here runs; a file that is forgotten is closed.
    """
    with file:
        while num_bytes and (chunk := file.read(min(_CHUNK, num_bytes))):
            num_bytes -= len(chunk)
            yield chunk

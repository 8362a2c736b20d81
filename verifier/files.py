"""Files of a run, written whole or not at all, and read with a clear message if they were damaged.

Special here: a run's own files replace whatever is in their place, because a strategy may have put a link or a pipe
there. If a person has named the place, a pipe is written to, and a link is followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from verifier.errors import UsageError

M = TypeVar("M", bound=BaseModel)
UNKEPT = "lockstep-unkept-"  # prefix of the names of folders that are removed with the process that made them
IN_MEMORY = "/dev/shm"  # a file system in memory, on Linux
ROOM_BYTES = 2 * 2**30  # a standard run on eight ranks takes a tenth of it
NO_PLACE = {  # errors of an unsuitable name
    errno.EACCES, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS,
}  # fmt: skip


def read_model(model: type[M], path: Path) -> M:
    """The content of ``path`` as a ``model``.

    Raises:
        UsageError: it holds something else.
        OSError: it cannot be read.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = f"{'.'.join(map(str, first['loc']))}: " if first["loc"] else ""
        raise UsageError(
            f"'{path}' is not what was written there: {where}{first['msg']}. Make the recording again, by "
            "'lockstep verify ... --out FOLDER'."
        ) from None


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Write ``path`` whole or not at all; with ``durable``, even if the machine crashes.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep ``folder`` for this process, until the context is left or the process dies; make it if it is missing.

    The folder itself is locked (flock), so no lock file is left in it. On a file system without locks nobody is kept
    out.

    Raises:
        UsageError: another process has the folder, or no folder can be there.
        OSError: the folder cannot be made for another reason, such as a full disk.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in NO_PLACE:
            raise
        raise UsageError(f"'{folder}' cannot be a folder of ours: {error.strerror}. Give another --out.") from None
    try:
        with suppress(OSError):
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"'{folder}' is being written to by another run. Wait until it has ended, or give another --out."
                ) from None
        yield
    finally:
        os.close(place)


def write_where_asked(path: Path, text: str) -> None:
    """Write ``text`` to a place that a person named: into an existing device or pipe (``/dev/fd/3``); else atomically,
    replacing what a link points to and not the link.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
    else:
        write_atomically(path.resolve(), text)


def place_in_memory() -> str | None:
    """The folder in memory for files that nobody asked to keep; None if the usual place must do, because there is no
    such folder here, it has little room, or ``TMPDIR`` names a place.
    """
    with suppress(OSError):
        if not os.environ.get("TMPDIR") and os.access(IN_MEMORY, os.W_OK | os.X_OK):
            return IN_MEMORY if shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES else None
    return None

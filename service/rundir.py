"""A run's directory: written in a hidden work directory, and published whole by one rename.

Special here: ``runs/<run id>/`` appears when the report in it is complete and on disk, so a reader never sees half a
report, and a worker that dies leaves only a work directory that the next attempt removes. Each attempt works in a
directory of its own: if two workers ever execute the same run, they do not write into each other's files.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

REPORT = "report.json"
ERROR = "error.txt"
_WORK = ".work"


def work_dir(runs_dir: Path) -> Path:
    """The hidden directory in which attempts work."""
    return runs_dir / _WORK


def report_path(runs_dir: Path, run_id: str) -> Path:
    return runs_dir / run_id / REPORT


class Attempt:
    """The directory of one attempt at one run."""

    def __init__(self, runs_dir: Path, run_id: str, attempt: int) -> None:
        self._runs_dir, self._run_id = runs_dir, run_id
        self.path = work_dir(runs_dir) / f"{run_id}.{attempt}"

    @property
    def published_report(self) -> Path:
        return report_path(self._runs_dir, self._run_id)

    def begin(self) -> Path:
        for left in self.path.parent.glob(f"{self._run_id}.*"):
            shutil.rmtree(left, ignore_errors=True)
        self.path.mkdir(parents=True)
        return self.path

    def publish(self, name: str, text: str) -> None:
        """Write the last file and publish the directory under the run's id, all or nothing."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path / name, text)
        target = self._runs_dir / self._run_id
        try:
            self.path.rename(target)
        except OSError:
            # Something was published before. A report stays, since it may have been read; an error is replaced.
            if self.published_report.exists():
                shutil.rmtree(self.path, ignore_errors=True)
                return
            shutil.rmtree(target)
            self.path.rename(target)
        _flush(self._runs_dir)

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    _flush(path.parent)


def _flush(directory: Path) -> None:
    """Sync ``directory`` to disk: only then is a rename in it durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

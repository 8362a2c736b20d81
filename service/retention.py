"""Deletes runs on request or by age, and cleans up after deletions that a crash interrupted.

Special here: a run is deleted in an order that can be restarted at any point: its place in the queue's history, then
its row with events and messages, then its directory, which one rename hides before its files are removed one by one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa
import structlog
from sqlalchemy.orm import Session

from service import audit
from service.db import RunRow
from service.queue import Producer
from service.rundir import ERROR, REPORT, work_dir
from service.runs import FINAL, RUN_ID, Runs
from service.settings import Settings

log = structlog.get_logger()
AT_ONCE = 200
LEFT_BEHIND_S = 24 * 3600.0  # a directory unchanged for this long is no longer in use


class Retention:
    def __init__(self, settings: Settings, engine: sa.Engine, producer: Producer) -> None:
        self._settings, self._engine, self._producer = settings, engine, producer
        self._runs = Runs(engine)

    def delete(self, run_id: str, note: Callable[[Session], None] | None = None) -> bool:
        """Delete a run that has ended. False: there is none, or it has not ended."""
        row = self._runs.get(run_id)
        if row is None or row.state not in FINAL:
            return False
        self._producer.forget([run_id])
        deleted = self._runs.delete(run_id, note)
        if deleted:
            self._remove(self._settings.runs_dir / run_id)
            log.info("run deleted", run=run_id)
        return deleted

    def sweep(self) -> None:
        """Delete data older than its retention time, and the remains of interrupted deletions."""
        days = self._settings
        if days.keep_runs_days:
            for run_id in self._ended_before(days.keep_runs_days):
                self.delete(run_id)
        if days.keep_recordings_days:
            for run_id in self._ended_before(days.keep_recordings_days, RunRow.recordings.is_(True)):
                self._remove_recordings(run_id)
        if days.keep_audit_days:
            audit.forget_old(self._engine, days.keep_audit_days)
        for left in self._left_behind():
            self._remove(left)

    def _ended_before(self, days: int, *where: sa.ColumnElement[bool]) -> list[str]:
        ended = RunRow.finished_at < datetime.now(UTC) - timedelta(days=days)
        query = sa.select(RunRow.id).where(ended, RunRow.state.in_(FINAL), *where).limit(AT_ONCE)
        with self._engine.connect() as connection:
            return list(connection.scalars(query))

    def _remove_recordings(self, run_id: str) -> None:
        folder = self._settings.runs_dir / run_id
        with suppress(FileNotFoundError):
            for entry in folder.iterdir():
                if entry.name not in (REPORT, ERROR):
                    self._remove(entry)
        with self._engine.begin() as connection:
            connection.execute(sa.update(RunRow).where(RunRow.id == run_id).values(recordings=False))
        log.info("recordings deleted", run=run_id)

    def _left_behind(self) -> Iterator[Path]:
        """Yield directories of runs that no longer exist, and work directories of attempts at runs that have ended."""
        old = time.time() - LEFT_BEHIND_S
        for folder in (self._settings.runs_dir, work_dir(self._settings.runs_dir)):
            with suppress(FileNotFoundError):
                for entry in list(folder.iterdir()):
                    with suppress(FileNotFoundError):
                        if entry.stat().st_mtime < old and self._is_nobodys(entry.name):
                            yield entry

    def _is_nobodys(self, name: str) -> bool:
        run_id, _, attempt = name.partition(".")
        if not RUN_ID.fullmatch(run_id):
            return False  # the name is not one that this service makes
        row = self._runs.get(run_id)
        return row is None or (bool(attempt) and row.state in FINAL)

    def _remove(self, path: Path) -> None:
        """Hide ``path`` by one rename, then delete it."""
        work = work_dir(self._settings.runs_dir)
        work.mkdir(parents=True, exist_ok=True)
        name = path.name.split(".")[0]
        hidden = work / f"{name if RUN_ID.fullmatch(name) else path.parent.name}.deleted-{time.time_ns()}"
        with suppress(FileNotFoundError):
            path.rename(hidden)
            if hidden.is_dir() and not hidden.is_symlink():
                shutil.rmtree(hidden, ignore_errors=True)
            else:
                hidden.unlink()

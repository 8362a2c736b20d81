"""Limits per caller and for the whole service: beyond them the answer is 429, with the time to wait.

Special here: waiting and unfinished runs, and runs in an hour, are counted in the database, in the transaction that
adds the run, so two submissions of one key do not both get the last place. Requests per minute are counted in each API
process alone. Where no key is required (only this machine has access), callers have no quota of their own.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from sqlalchemy.orm import Session

from service.caller import Caller
from service.db import KeyRow, RunRow
from service.settings import Settings

WAIT_FOR_QUEUE_S = 30
WAIT_FOR_RUNS_S = 15
_HOUR = timedelta(hours=1)


class TooMuch(Exception):
    """Raised when a limit is reached; ``retry_after_s`` says when to try again."""

    def __init__(self, kind: str, detail: str, retry_after_s: float) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.retry_after_s = kind, detail, max(1, math.ceil(retry_after_s))


@dataclass(frozen=True)
class Limits:
    """The limits of one API process; the numbers are the settings', or a key's own where it has some."""

    settings: Settings
    _window: MovingWindowRateLimiter

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        return cls(settings, MovingWindowRateLimiter(MemoryStorage()))

    def request(self, caller: Caller) -> None:
        """Count a request.

        Raises:
            TooMuch: the caller has reached its limit of requests per minute.
        """
        most = self.settings.requests_per_minute
        if not caller.has_key or most == 0:
            return
        rate = RateLimitItemPerMinute(most)
        if not self._window.hit(rate, caller.id):
            again_at = self._window.get_window_stats(rate, caller.id).reset_time
            detail = f"The key '{caller.name}' has made {most} requests in a minute, which is its limit."
            raise TooMuch("too-many-requests", detail, again_at - time.time())

    def admit(self, session: Session, caller: Caller) -> None:
        """Check the limits for one more run, within the transaction that is to add it.

        Raises:
            TooMuch: the queue is full, or the caller's quota is used up.
        """
        if session.get_bind().dialect.name == "sqlite":  # its driver begins no transaction before the first write
            session.connection().exec_driver_sql("BEGIN IMMEDIATE")
        most = self.settings.max_queued
        if most and _count(session, RunRow.state == "queued") >= most:
            detail = f"{most} runs are waiting, which is as many as the queue takes (LOCKSTEP_MAX_QUEUED)."
            raise TooMuch("queue-full", detail, WAIT_FOR_QUEUE_S)
        if caller.has_key:
            self._admit_caller(session, caller)

    def _admit_caller(self, session: Session, caller: Caller) -> None:
        # Lock the key's row, where the database locks rows, so that submissions of one key are counted in sequence.
        key = session.get(KeyRow, caller.id, with_for_update=True)
        unfinished = _first(key.max_unfinished if key else None, self.settings.max_unfinished_per_key)
        hourly = _first(key.runs_per_hour if key else None, self.settings.runs_per_hour_per_key)
        ours = RunRow.key_id == caller.id
        if unfinished and _count(session, ours, RunRow.state.in_(("queued", "running"))) >= unfinished:
            detail = f"The key '{caller.name}' has {unfinished} runs that have not ended, which is its limit."
            raise TooMuch("too-many-unfinished-runs", detail, WAIT_FOR_RUNS_S)
        if hourly:
            now = datetime.now(UTC)
            query = sa.select(RunRow.created_at).where(ours, RunRow.created_at > now - _HOUR)
            # If the last hour holds the maximum, the oldest of these runs must leave the window first.
            oldest = session.scalar(query.order_by(RunRow.created_at.desc()).offset(hourly - 1).limit(1))
            if oldest is not None:
                detail = f"The key '{caller.name}' has submitted {hourly} runs in an hour, which is its limit."
                raise TooMuch("too-many-runs", detail, (oldest + _HOUR - now).total_seconds())


def _first(own: int | None, general: int) -> int:
    return general if own is None else own


def _count(session: Session, *where: sa.ColumnElement[bool]) -> int:
    return session.scalar(sa.select(sa.func.count()).select_from(RunRow).where(*where)) or 0

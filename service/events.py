"""Events of runs: changes of state, and progress within one, as rows at which a stream can resume.

Special here: a change of state and its event are written in one transaction, so a stream never reports a change that
did not happen. Progress is recorded at most twice a second, and never by an attempt that no longer holds the run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db import EventRow

LONGEST = 300
EVERY_S = 0.5
STATE, PROGRESS = "state", "progress"


def record(session: Session, run_id: str, kind: str, text: str) -> None:
    """Add an event within the transaction of ``session``."""
    session.add(EventRow(run_id=run_id, kind=kind, text=text[:LONGEST], at=datetime.now(UTC)))


def after(engine: sa.Engine, run_id: str, last: int, limit: int = 200) -> Sequence[EventRow]:
    """The events of ``run_id`` with numbers above ``last``, oldest first."""
    query = sa.select(EventRow).where(EventRow.run_id == run_id, EventRow.id > last).order_by(EventRow.id).limit(limit)
    with Session(engine, expire_on_commit=False) as session:
        return session.scalars(query).all()


class Throttle:
    """Limits progress events to one in ``EVERY_S``: no reader is faster, and each costs a write to the database."""

    def __init__(self) -> None:
        self._next = 0.0

    def lets_through(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + EVERY_S
        return True

"""The runs table, and every change of state that a run can make.

Special here: each change is one guarded UPDATE, so a change that comes too late does nothing. A run cancelled
while it was being picked up stays cancelled, and a worker that counted as dead but then reports a result no longer
holds the run (``Claim``).
"""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from service import events, webhooks
from service.db import RunRow
from verifier.request import Request

# If a run's workers die again and again, the run probably kills them.
MAX_ATTEMPTS = 5
_SUBMITTED = ("request", "labels", "priority", "webhook")
FINAL = ("finished", "cancelled", "errored")
RUN_ID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")


class NotCancellable(Exception):
    """Raised for a run that has ended; ``state`` says how."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state


class KeyInUse(Exception):
    """Raised if the idempotency key belongs to run ``run_id``, which was a different submission."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


@dataclass(frozen=True)
class Claim:
    """The right to execute a run and to say how it ended."""

    run_id: str
    attempt: int
    executor_id: str
    request: Request


def new_run_id() -> str:
    """A UUID of version 7: it begins with the time, so runs sort by it."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    return str(uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62))


def name_of_strategy(request: Request) -> str:
    strategy = request.strategy
    if strategy.kind == "builtin":
        return strategy.name
    return strategy.entrypoint if strategy.kind != "file" else f"{strategy.path}:{strategy.attribute}"


def _row(request: Request, labels: dict[str, str], priority: int, more: Mapping[str, str | None]) -> RunRow:
    return RunRow(
        **more,
        id=new_run_id(),
        state="queued",
        strategy=name_of_strategy(request),
        world_size=request.world_size,
        request=request.model_dump(mode="json"),
        labels=labels,
        priority=priority,
        attempt=0,
        created_at=datetime.now(UTC),
    )


class Runs:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def _session(self) -> Session:
        return Session(self._engine, expire_on_commit=False)

    def add(
        self,
        request: Request,
        labels: dict[str, str],
        priority: int,
        enqueue: Callable[[Session, RunRow], None],
        *,
        admit: Callable[[Session], None] | None = None,
        **more: str | None,
    ) -> RunRow:
        """Store a run and put it into the queue in the same transaction: both happen, or neither.

        ``admit`` may refuse it in that transaction, by raising. ``more`` are other columns of the row. If a run has the
        given ``idempotency_key`` already, that run is returned, and nothing is added.

        Raises:
            KeyInUse: the key belongs to a different submission.
        """
        row = _row(request, labels, priority, more)
        if (before := self._with_key(row)) is not None:
            return before
        try:
            with self._session() as session, session.begin():
                if admit is not None:
                    admit(session)
                session.add(row)
                session.flush()
                events.record(session, row.id, events.STATE, "queued")
                enqueue(session, row)
        except IntegrityError:  # the same submission came twice at once
            if (before := self._with_key(_row(request, labels, priority, more))) is None:
                raise
            return before
        return row

    def _with_key(self, row: RunRow) -> RunRow | None:
        if row.idempotency_key is None:
            return None
        with self._session() as session:
            found = session.scalar(sa.select(RunRow).where(RunRow.idempotency_key == row.idempotency_key))
        if found is not None and any(getattr(found, part) != getattr(row, part) for part in _SUBMITTED):
            raise KeyInUse(found.id)
        return found

    def get(self, run_id: str) -> RunRow | None:
        if not RUN_ID.fullmatch(run_id):  # some databases reject some strings
            return None
        with self._session() as session:
            return session.get(RunRow, run_id)

    def page(
        self,
        limit: int,
        before: str | None,
        state: str | None,
        verdict: str | None,
        *,
        strategy: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Sequence[RunRow]:
        """A page of runs, newest first, without columns that a list does not show."""
        query = sa.select(RunRow).order_by(RunRow.id.desc()).limit(limit).options(defer(RunRow.request))
        if before is not None:
            query = query.where(RunRow.id < before)
        if state is not None:
            query = query.where(RunRow.state == state)
        if verdict is not None:
            query = query.where(RunRow.verdict == verdict)
        if strategy is not None:
            query = query.where(RunRow.strategy == strategy)
        for name, value in (labels or {}).items():
            query = query.where(RunRow.labels[name].as_string() == value)
        with self._session() as session:
            return session.scalars(query).all()

    def cancel(self, run_id: str, note: Callable[[Session], None] | None = None) -> RunRow | None:
        """Cancel a run: it leaves the queue, or its worker ends it. None: there is no such run."""
        if not RUN_ID.fullmatch(run_id):
            return None
        with self._session() as session, session.begin():
            unfinished = RunRow.state.in_(("queued", "running"))
            if self._change(session, run_id, unfinished, **_ended("cancelled")) and note is not None:
                note(session)
            row = session.get(RunRow, run_id)
        if row is not None and row.state != "cancelled":
            raise NotCancellable(row.state)
        return row

    def cancelled(self, run_ids: Sequence[str]) -> list[str]:
        """The cancelled runs among ``run_ids``."""
        query = sa.select(RunRow.id).where(RunRow.id.in_(run_ids), RunRow.state == "cancelled")
        with self._session() as session:
            return list(session.scalars(query))

    def claim(self, run_id: str, executor_id: str) -> Claim | None:
        """Begin the next attempt. None: there is nothing (more) to execute."""
        with self._session() as session, session.begin():
            begun = self._change(
                session,
                run_id,
                RunRow.state.in_(("queued", "running")),
                RunRow.attempt < MAX_ATTEMPTS,
                state="running",
                attempt=RunRow.attempt + 1,
                executor_id=executor_id,
                started_at=datetime.now(UTC),
            )
            row = session.get(RunRow, run_id)
            if begun and row is not None:
                return Claim(run_id, row.attempt, executor_id, Request.model_validate(row.request))
        self.give_up(
            run_id, f"The worker ended {MAX_ATTEMPTS} times while executing this run, so it is not tried again."
        )
        return None

    def finish(self, claim: Claim, verdict: str, summary: str) -> bool:
        return self._end(claim, **_ended("finished"), verdict=verdict, summary=summary, error=None)

    def fail(self, claim: Claim, error: str) -> bool:
        return self._end(claim, **_ended("errored"), error=error)

    def release(self, claim: Claim) -> bool:
        """Put a run back into the queue because its worker stops; the attempt does not count."""
        return self._end(claim, state="queued", attempt=claim.attempt - 1, executor_id=None, started_at=None)

    def give_up(self, run_id: str, error: str) -> bool:
        """End a run that will not be executed any more, as errored."""
        with self._session() as session, session.begin():
            unfinished = RunRow.state.in_(("queued", "running"))
            return self._change(session, run_id, unfinished, **_ended("errored"), error=error)

    def delete(self, run_id: str, note: Callable[[Session], None] | None = None) -> bool:
        """Delete a run that has ended, with its events and messages. False: there is none, or it has not ended."""
        with self._session() as session, session.begin():
            ended = sa.delete(RunRow).where(RunRow.id == run_id, RunRow.state.in_(FINAL))
            deleted = bool(session.execute(ended).rowcount)  # type: ignore[attr-defined]
            if deleted and note is not None:
                note(session)
        return deleted

    def unfinished(self) -> list[str]:
        with self._session() as session:
            return list(session.scalars(sa.select(RunRow.id).where(RunRow.state.in_(("queued", "running")))))

    def _end(self, claim: Claim, **values: Any) -> bool:
        with self._session() as session, session.begin():
            return self._change(session, claim.run_id, *_held(claim), **values)

    def progress(self, claim: Claim, text: str) -> None:
        """Record the progress of an execution, if ``claim`` still holds the run."""
        with self._session() as session, session.begin():
            held = sa.select(RunRow.id).where(*_held(claim))
            if session.scalar(held) is not None:
                events.record(session, claim.run_id, events.PROGRESS, text)

    @staticmethod
    def _change(session: Session, run_id: str, *where: sa.ColumnElement[bool], **values: Any) -> bool:
        """Change the run if it matches ``where``, and record the event of its new state; return whether it changed."""
        result = session.execute(sa.update(RunRow).where(RunRow.id == run_id, *where).values(**values))
        changed = bool(result.rowcount)  # type: ignore[attr-defined]
        if changed:
            events.record(session, run_id, events.STATE, values["state"])
        if changed and values["state"] in FINAL:
            webhooks.put(session, run_id)
        return changed


def _held(claim: Claim) -> tuple[sa.ColumnElement[bool], ...]:
    """The conditions under which ``claim`` still holds the run."""
    return (
        RunRow.id == claim.run_id,
        RunRow.state == "running",
        RunRow.attempt == claim.attempt,
        RunRow.executor_id == claim.executor_id,
    )


def _ended(state: str) -> dict[str, Any]:
    return {"state": state, "finished_at": datetime.now(UTC)}

"""The database: the service's own tables, and the engine that all code uses, DBOS too.

Special here: our tables are in the same database as DBOS's, so that a run and its place in the queue are written
in one transaction. We put SQLite into WAL mode, with immediate write transactions and a long busy timeout: without
them a second writer gets "database is locked" at once, or deadlocks when it upgrades from reading.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

BUSY_TIMEOUT_MS = 30_000


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """An aware UTC time. SQLite stores times without their zone; this type restores it."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value.astimezone(UTC) if value is not None else None

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    # Named constraints: a later migration can then drop one, on Postgres as on SQLite.
    metadata = sa.MetaData(naming_convention={"ck": "ck_%(table_name)s_%(constraint_name)s"})


class RunRow(Base):
    """One run. Ids sort by creation time, so newest first is the reverse order of the primary key."""

    __tablename__ = "runs"
    __table_args__ = (
        sa.CheckConstraint("state IN ('queued','running','finished','cancelled','errored')", name="state"),
        # A verdict belongs to a finished run, and every finished run has one.
        sa.CheckConstraint("(state = 'finished') = (verdict IS NOT NULL)", name="verdict"),
        sa.Index("ix_runs_state_id", "state", "id"),
        sa.Index("ix_runs_verdict_id", "verdict", "id"),
        sa.Index("ix_runs_idempotency_key", "idempotency_key", unique=True),
        sa.Index("ix_runs_key_id_state", "key_id", "state"),
        sa.Index("ix_runs_finished_at", "finished_at"),
    )

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    state: Mapped[str] = mapped_column(sa.String(16))
    verdict: Mapped[str | None] = mapped_column(sa.String(16))
    summary: Mapped[str | None] = mapped_column(sa.Text)
    error: Mapped[str | None] = mapped_column(sa.Text)
    strategy: Mapped[str] = mapped_column(sa.String(300))
    world_size: Mapped[int]
    request: Mapped[dict[str, Any]] = mapped_column(sa.JSON)
    labels: Mapped[dict[str, str]] = mapped_column(sa.JSON)
    priority: Mapped[int]
    idempotency_key: Mapped[str | None] = mapped_column(sa.String(200))
    key_id: Mapped[str | None] = mapped_column(sa.String(16))  # the API key it was submitted with
    webhook: Mapped[str | None] = mapped_column(sa.Text)  # address to notify when it has ended
    recordings: Mapped[bool] = mapped_column(sa.Boolean, server_default=sa.true())  # not yet removed
    # The number of the attempt, and its executor: only the pair that began a run may end it.
    attempt: Mapped[int]
    executor_id: Mapped[str | None] = mapped_column(sa.String(100))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class EventRow(Base):
    """An event of a run (``events.py``). Its number is the id of the event in a stream."""

    __tablename__ = "events"
    __table_args__ = (sa.Index("ix_events_run_id_id", "run_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run_id: Mapped[str] = mapped_column(sa.String(36), sa.ForeignKey("runs.id", ondelete="CASCADE"))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    kind: Mapped[str] = mapped_column(sa.String(16))
    text: Mapped[str] = mapped_column(sa.String(300))


class KeyRow(Base):
    """An API key (``keys.py``), of which only a hash is kept."""

    __tablename__ = "api_keys"
    __table_args__ = (sa.CheckConstraint("scope IN ('read','submit','admin')", name="scope"),)

    id: Mapped[str] = mapped_column(sa.String(16), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(100))
    scope: Mapped[str] = mapped_column(sa.String(16))
    hash: Mapped[str] = mapped_column(sa.String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    max_unfinished: Mapped[int | None]  # None: as the settings say for all
    runs_per_hour: Mapped[int | None]


class AuditRow(Base):
    """A change that a caller requested (``audit.py``)."""

    __tablename__ = "audit"
    __table_args__ = (sa.Index("ix_audit_at", "at"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    key_id: Mapped[str] = mapped_column(sa.String(16))
    name: Mapped[str] = mapped_column(sa.String(100))
    action: Mapped[str] = mapped_column(sa.String(40))
    target: Mapped[str] = mapped_column(sa.String(100))
    address: Mapped[str | None] = mapped_column(sa.String(100))


class DeliveryRow(Base):
    """A message about a run that has ended (``webhooks.py``)."""

    __tablename__ = "deliveries"
    __table_args__ = (sa.Index("ix_deliveries_due_at", "due_at"), sa.Index("ix_deliveries_run_id", "run_id"))

    id: Mapped[str] = mapped_column(sa.String(36), primary_key=True)
    run_id: Mapped[str] = mapped_column(sa.String(36), sa.ForeignKey("runs.id", ondelete="CASCADE"))
    url: Mapped[str] = mapped_column(sa.Text)
    attempts: Mapped[int]
    due_at: Mapped[float | None] = mapped_column(sa.Double)  # None: delivered, or given up
    delivered_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    error: Mapped[str | None] = mapped_column(sa.Text)


class ExecutorRow(Base):
    """A worker process's heartbeat (``heartbeat.py``)."""

    __tablename__ = "executors"

    id: Mapped[str] = mapped_column(sa.String(100), primary_key=True)
    process: Mapped[str | None] = mapped_column(sa.String(200))
    slots: Mapped[int]
    beat_at: Mapped[float] = mapped_column(sa.Double)


def connect(url: str) -> sa.Engine:
    """The engine for ``url``. It opens no connection until it is first used."""
    if not url.startswith("sqlite"):
        return sa.create_engine(url, pool_size=20, max_overflow=10, pool_pre_ping=True)
    engine = sa.create_engine(url, pool_size=20, max_overflow=10)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = "IMMEDIATE"
    # First: switching to WAL needs the write lock for a moment, and another process may hold it.
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")


def clock(engine: sa.Engine) -> sa.ColumnElement[float]:
    """Seconds since 1970 by one clock for all processes on the database: its server's, or this machine's."""
    if engine.dialect.name == "postgresql":
        return sa.cast(sa.func.extract("epoch", sa.func.clock_timestamp()), sa.Double)
    return sa.literal(time.time(), sa.Double)

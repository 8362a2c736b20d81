"""The audit log: one row for every change that a caller requested, kept as long as the operator says.

Special here: a row is written in the transaction of the change itself, so neither exists without the other. Refused
requests change nothing and are in the log only; otherwise any refused caller could fill the database.
"""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.caller import COMMAND_LINE, Caller
from service.db import AuditRow


def record(session: Session, caller: Caller, action: str, target: str) -> None:
    """Add a row within the transaction of ``session``."""
    who = {"key_id": caller.id, "name": caller.name, "address": caller.address}
    session.add(AuditRow(at=datetime.now(UTC), action=action, target=target, **who))


def operator() -> Caller:
    """The caller for commands that work on the database itself."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        name = "unnamed user"
    return Caller(COMMAND_LINE, name[:100], "admin")


def page(engine: sa.Engine, limit: int, before: int | None) -> Sequence[AuditRow]:
    """At most ``limit`` rows, newest first."""
    query = sa.select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditRow.id < before)
    with Session(engine, expire_on_commit=False) as session:
        return session.scalars(query).all()


def forget_old(engine: sa.Engine, days: int) -> int:
    """Delete rows older than ``days``; returns how many."""
    with engine.begin() as connection:
        old = AuditRow.at < datetime.now(UTC) - timedelta(days=days)
        return connection.execute(sa.delete(AuditRow).where(old)).rowcount

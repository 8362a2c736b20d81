"""API keys: made, listed and revoked by command on the database itself, and checked on every request.

Special here: a key is ``lsk_ID_SECRET``. The id finds the row, which holds only a SHA-256 of the secret: the secret has
256 random bits, so a slower hash is not needed against guessing. It is shown once, when it is made. A comparison takes
the same time whether the id exists or not.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from service import audit
from service.caller import SCOPES, Caller, Scope
from service.db import KeyRow
from verifier.errors import UsageError

_TOKEN = re.compile(r"lsk_([0-9a-f]{16})_([0-9a-zA-Z_-]{43})")
_NOBODY = "0" * 64


class Keys:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def make(
        self, name: str, scope: Scope, *, max_unfinished: int | None = None, runs_per_hour: int | None = None
    ) -> str:
        """Make a key and return it; it is never shown again. Limits that are None are the settings'."""
        if not name.strip() or len(name) > 100:
            raise UsageError(f"the name is '{name[:100]}', and must have 1 to 100 characters: say whose key it is.")
        identity, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        with Session(self._engine) as session, session.begin():
            row = KeyRow(
                id=identity,
                name=name,
                scope=scope,
                hash=_hash(secret),
                created_at=datetime.now(UTC),
                max_unfinished=max_unfinished,
                runs_per_hour=runs_per_hour,
            )
            session.add(row)
            audit.record(session, audit.operator(), "key.added", identity)
        return f"lsk_{identity}_{secret}"

    def all(self) -> Sequence[KeyRow]:
        with Session(self._engine, expire_on_commit=False) as session:
            return session.scalars(sa.select(KeyRow).order_by(KeyRow.created_at)).all()

    def revoke(self, identity: str) -> None:
        """Revoke a key from now on, for good. Revoking twice is harmless."""
        with Session(self._engine) as session, session.begin():
            row = session.get(KeyRow, identity.removeprefix("lsk_")[:16])
            if row is None:
                raise UsageError(f"there is no key '{identity}'. 'lockstep keys list' shows the ids.")
            if row.revoked_at is None:
                row.revoked_at = datetime.now(UTC)
                audit.record(session, audit.operator(), "key.revoked", row.id)

    def caller(self, token: str) -> Caller | None:
        """The caller whose key ``token`` is; None if the key is unknown or revoked."""
        parts = _TOKEN.fullmatch(token)
        identity, secret = parts.groups() if parts else ("", "")
        with Session(self._engine) as session:
            row = session.get(KeyRow, identity)
        right = hmac.compare_digest(row.hash if row else _NOBODY, _hash(secret))
        if row is None or not right or row.revoked_at is not None:
            return None
        return Caller(row.id, row.name, next(scope for scope in SCOPES if scope == row.scope))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()

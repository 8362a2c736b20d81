"""Webhooks about runs that have ended: signed messages that are stored until delivered or given up.

Special here: a message is a row, written in the transaction that ended the run; the first free worker sends it. It is
sent at least once: a receiver recognises repetitions by ``webhook-id``. Form and signature are those of
https://www.standardwebhooks.com, so receivers have libraries for it. Redirects are not followed: a message goes only to
the allowed host.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import sqlalchemy as sa
import structlog
from sqlalchemy.orm import Session

from service.db import DeliveryRow, RunRow, clock
from service.settings import Settings, signing_key
from verifier.errors import UsageError

log = structlog.get_logger()
TIMEOUT_S = 15.0
LEASE_S = 60.0  # if a worker takes a message and dies, another one takes it after this time
# Seconds to wait before each further attempt; about three days in all.
WAITS_S = (5, 60, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
GONE = 410  # with this status a receiver asks for no further attempts


def put(session: Session, run_id: str) -> None:
    """Add a message within the transaction that ends the run, if the run has a webhook."""
    url = session.scalar(sa.select(RunRow.webhook).where(RunRow.id == run_id))
    if url is not None:
        identity = f"msg_{secrets.token_hex(12)}"
        session.add(
            DeliveryRow(id=identity, run_id=run_id, url=url, attempts=0, due_at=0.0)
        )  # due at once, whatever the clocks say


def allowed(url: str | None, settings: Settings) -> str | None:
    """The address that a run's message goes to; None: there is none.

    Raises:
        UsageError: ``url`` leads to a host that the operator has not allowed.
    """
    if url is None:
        return settings.webhook_url
    hosts = {host.strip().lower() for host in settings.webhook_hosts.split(",") if host.strip()}
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme, (parts.hostname or "").lower()
    except ValueError:
        scheme, host = "", ""
    if scheme not in ("http", "https") or host not in hosts:
        shown = ", ".join(sorted(hosts)) or "none"
        raise UsageError(
            f"webhook is '{url[:200]}'; it must be an http or https address on a host that this service may tell "
            f"(LOCKSTEP_WEBHOOK_HOSTS): {shown}. Leave it out, or ask the operator."
        )
    return url


class Sender:
    """Sends messages, on a worker: call ``send_due`` regularly."""

    def __init__(self, settings: Settings, engine: sa.Engine, post: Callable[..., httpx.Response] = httpx.post) -> None:
        secret = settings.webhook_secret
        self._key = signing_key(secret.get_secret_value()) if secret is not None else None
        self._engine, self._post = engine, post

    def send_due(self, most: int = 20) -> int:
        """Send the messages that are due; return how many were tried."""
        if self._key is None:
            return 0
        tried = 0
        while tried < most and (row := self._take()) is not None:
            tried += 1
            self._note(row, self._send(row))
        return tried

    def _take(self) -> DeliveryRow | None:
        """Lease the message that has been due longest. None: there is none, or another worker took it first."""
        now = clock(self._engine)
        with Session(self._engine, expire_on_commit=False) as session, session.begin():
            due = sa.select(DeliveryRow).where(DeliveryRow.due_at <= now).order_by(DeliveryRow.due_at).limit(1)
            row = session.scalar(due)
            if row is None:
                return None
            ours = DeliveryRow.id == row.id, DeliveryRow.due_at == row.due_at
            taken = sa.update(DeliveryRow).where(*ours).values(due_at=now + LEASE_S, attempts=DeliveryRow.attempts + 1)
            if not session.execute(taken.execution_options(synchronize_session=False)).rowcount:  # type: ignore[attr-defined]
                return None
            session.refresh(row)
            return row

    def _send(self, row: DeliveryRow) -> str | None:
        """Send a message. None: delivered; otherwise the problem, which is empty if the receiver wants no more."""
        body = self._body(row.run_id)
        try:
            answer = self._post(row.url, content=body, headers=self._headers(row.id, body), timeout=TIMEOUT_S)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return f"{type(error).__name__}: {error}"[:300]
        if answer.is_success:
            return None
        return "" if answer.status_code == GONE else f"it answered {answer.status_code}"

    def _note(self, row: DeliveryRow, problem: str | None) -> None:
        over = not problem or row.attempts > len(WAITS_S)
        values: dict[str, Any] = {"error": problem, "due_at": None}
        if problem is None:
            values["delivered_at"] = datetime.now(UTC)
        elif not over:
            values["due_at"] = clock(self._engine) + WAITS_S[row.attempts - 1]
        with self._engine.begin() as connection:
            connection.execute(sa.update(DeliveryRow).where(DeliveryRow.id == row.id).values(**values))
        state = "delivered" if problem is None else "given up" if over else "to be repeated"
        log.info(f"webhook {state}", run=row.run_id, url=row.url, attempt=row.attempts, error=problem)

    def _body(self, run_id: str) -> bytes:
        from service.schemas import RunSummary

        with Session(self._engine) as session:
            run = RunSummary.model_validate(session.get(RunRow, run_id)).model_dump(mode="json")
        return json.dumps({"type": f"run.{run['state']}", "timestamp": run["finished_at"], "data": run}).encode()

    def _headers(self, identity: str, body: bytes) -> dict[str, str]:
        assert self._key is not None
        sent_at = str(int(time.time()))
        return {
            "content-type": "application/json",
            "webhook-id": identity,
            "webhook-timestamp": sent_at,
            "webhook-signature": sign(self._key, identity, sent_at, body),
        }


def sign(key: bytes, identity: str, timestamp: str, body: bytes) -> str:
    """``v1,`` and the base64 of an HMAC-SHA256 over ``identity.timestamp.body`` (standardwebhooks.com, symmetric)."""
    digest = hmac.new(key, f"{identity}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"

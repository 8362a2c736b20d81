"""Checks whether a submission can be carried out, before anything is queued.

Special here: the answer comes from the verifier's own ``plan``, so the service refuses the same requests as the
command, in the same words. Rules that only the service has are added here.
"""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from service.db import RunRow
from service.queue import Producer
from service.runs import Runs
from service.schemas import RunSubmission
from service.settings import Settings
from verifier.errors import UsageError
from verifier.launcher import CONTAINING
from verifier.request import Builtin, Request


def accept(submission: RunSubmission, settings: Settings) -> Request:
    """The request to queue. Raises UsageError with the reason if the submission cannot be carried out."""
    if settings.launcher != "auto" and submission.launcher not in ("auto", settings.launcher):
        raise UsageError(
            f"launcher is '{submission.launcher}', and this service runs ranks by '{settings.launcher}' alone. "
            "Leave it out."
        )
    contained = settings.launcher in CONTAINING
    if submission.strategy.kind == "source" and not contained and not settings.trust_source:
        raise UsageError(
            "strategy.kind is 'source': this service runs sent source only in containers, and has none. "
            "Name a builtin or an importable strategy, or have the operator set LOCKSTEP_TRUST_SOURCE=true "
            "on a machine where running foreign code is acceptable."
        )
    from verifier import engine  # imported late: the service starts, and shows its help, without it

    request = submission.to_request(trust=settings.trust_source)
    if settings.launcher != "auto":
        request = request.model_copy(update={"launcher": settings.launcher})
    engine.plan(request)
    return request


class _Rehearsed(Exception):
    """Ends a rehearsal, so that the transaction is rolled back."""


def rehearse(runs: Runs, producer: Producer) -> None:
    """Submit a run and roll it back, so that everything that is loaded, compiled and opened once (0.3 s) is ready
    before the first real submission."""
    from verifier import engine

    def enqueue(session: Session, row: RunRow) -> None:
        producer.enqueue(session, row.id, row.priority)
        raise _Rehearsed

    request = Request(strategy=Builtin(name="naive"))
    engine.plan(request)
    with suppress(_Rehearsed, SQLAlchemyError):  # if the database is unreachable, the first real request reports it
        runs.add(request, {}, 0, enqueue)

"""``/runs``: submit, list, get, cancel, delete."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from sqlalchemy.orm import Session

from service import audit
from service.access import needs
from service.caller import Caller
from service.context import Context, ContextOf
from service.db import RunRow
from service.problems import GUARDED, Problem, declare, no_such_run
from service.runs import KeyInUse, NotCancellable
from service.schemas import Run, RunPage, RunQuery, RunSubmission, RunSummary
from service.submission import accept
from service.webhooks import allowed

router = APIRouter(prefix="/runs", tags=["runs"], dependencies=[Depends(needs("read"))])


@router.post("", status_code=202, responses=declare(400, 413, 422, *GUARDED))
def submit_run(
    submission: RunSubmission,
    request: Request,
    response: Response,
    context: ContextOf,
    caller: Annotated[Caller, Depends(needs("submit"))],
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            pattern=r"^[\x21-\x7e]+$",
            description="a name of your own for this submission: sent again with the same one, it is the same run",
        ),
    ] = None,
) -> Run:
    """Queue a verification. One that cannot be carried out is refused here (422), and not queued."""
    row = submit(submission, context, caller, idempotency_key)
    response.headers["Location"] = str(request.app.url_path_for("get_run", run_id=row.id))
    return Run.model_validate(row)


def submit(submission: RunSubmission, context: Context, caller: Caller, idempotency_key: str | None = None) -> RunRow:
    """Store and queue a run, if the submission can be carried out and the limits allow it."""

    def enqueue(session: Session, row: RunRow) -> None:
        context.producer.enqueue(session, row.id, row.priority)
        audit.record(session, caller, "run.submitted", row.id)

    try:
        return context.runs.add(
            accept(submission, context.settings),
            submission.labels,
            submission.priority,
            enqueue,
            admit=lambda session: context.limits.admit(session, caller),
            idempotency_key=_own(caller, idempotency_key),
            key_id=caller.id if caller.has_key else None,
            webhook=allowed(submission.webhook, context.settings),
        )
    except KeyInUse as error:
        detail = f"Idempotency-Key '{idempotency_key}' belongs to run {error.run_id}, which was another submission."
        raise Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency-key-in-use", f"{detail} Choose a new one."
        ) from None


@router.get("", responses=declare(422, *GUARDED))
def list_runs(query: Annotated[RunQuery, Query()], context: ContextOf) -> RunPage:
    """Runs, newest first."""
    # One row more than requested shows whether there is a next page.
    rows = context.runs.page(
        query.limit + 1, query.cursor, query.state, query.verdict, strategy=query.strategy, labels=query.labels()
    )
    page = [RunSummary.model_validate(row) for row in rows[: query.limit]]
    return RunPage(runs=page, next_cursor=page[-1].id if len(rows) > query.limit else None)


@router.get("/{run_id}", responses=declare(404, 422, *GUARDED))
def get_run(run_id: str, context: ContextOf) -> Run:
    """One run: its state, and the verdict once it is finished."""
    row = context.runs.get(run_id)
    if row is None:
        raise no_such_run(run_id)
    return Run.model_validate(row)


@router.post("/{run_id}/cancel", responses=declare(404, 409, 422, *GUARDED))
def cancel_run(run_id: str, context: ContextOf, caller: Annotated[Caller, Depends(needs("submit"))]) -> Run:
    """Take a run out of the queue, or end it while it runs: its ranks end within two seconds. Repeating it is
    harmless."""
    try:
        row = context.runs.cancel(run_id, lambda session: audit.record(session, caller, "run.cancelled", run_id))
    except NotCancellable as error:
        detail = f"Run {run_id} is {error.state}; only a queued or running run can be cancelled. It has ended."
        raise Problem(HTTPStatus.CONFLICT, "run-ended", detail) from None
    if row is None:
        raise no_such_run(run_id)
    return Run.model_validate(row)


@router.delete("/{run_id}", status_code=204, response_class=Response, responses=declare(404, 409, 422, *GUARDED))
def delete_run(run_id: str, context: ContextOf, caller: Annotated[Caller, Depends(needs("submit"))]) -> None:
    """Delete a run that has ended, with its report and recordings, for good. A key that is not `admin` may only delete
    runs that were submitted with it."""
    row = context.runs.get(run_id)
    if row is None:
        raise no_such_run(run_id)
    if not caller.may("admin") and row.key_id != caller.id:
        detail = f"Run {run_id} was not submitted with the key '{caller.name}'; deleting it needs an admin key."
        raise Problem(HTTPStatus.FORBIDDEN, "not-your-run", detail)
    if not context.retention.delete(run_id, lambda session: audit.record(session, caller, "run.deleted", run_id)):
        state = row.state if (row := context.runs.get(run_id)) is not None else "deleted"
        detail = f"Run {run_id} is {state}; only a run that has ended can be deleted. Cancel it first."
        raise Problem(HTTPStatus.CONFLICT, "run-not-ended", detail)


def _own(caller: Caller, key: str | None) -> str | None:
    """The Idempotency-Key as stored: hashed with the caller's id, because two callers may choose the same key."""
    if key is None or not caller.has_key:
        return key
    return hashlib.sha256(f"{caller.id}/{key}".encode()).hexdigest()

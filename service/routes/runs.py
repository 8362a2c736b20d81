"""``/runs``: submit, list, look at, cancel."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from service.access import needs
from service.context import ContextOf
from service.problems import GUARDED, Problem, declare, no_such_run
from service.runs import KeyInUse, NotCancellable
from service.schemas import Run, RunPage, RunQuery, RunSubmission, RunSummary
from service.submission import accept

router = APIRouter(prefix="/runs", tags=["runs"], dependencies=[Depends(needs("read"))])


@router.post("", status_code=202, responses=declare(400, 422, *GUARDED), dependencies=[Depends(needs("submit"))])
def submit_run(
    submission: RunSubmission,
    request: Request,
    response: Response,
    context: ContextOf,
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
    """Queue a verification. What cannot be carried out is refused here (422), and nothing is queued."""
    try:
        row = context.runs.add(
            accept(submission, context.settings),
            submission.labels,
            submission.priority,
            lambda session, row: context.producer.enqueue(session, row.id, row.priority),
            key=idempotency_key,
        )
    except KeyInUse as error:
        detail = f"Idempotency-Key '{idempotency_key}' belongs to run {error.run_id}, which was another submission."
        raise Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency-key-in-use", f"{detail} Choose a new one."
        ) from None
    response.headers["Location"] = str(request.app.url_path_for("get_run", run_id=row.id))
    return Run.model_validate(row)


@router.get("", responses=declare(422, *GUARDED))
def list_runs(query: Annotated[RunQuery, Query()], context: ContextOf) -> RunPage:
    """Runs, newest first."""
    # One more than asked for tells whether there is a next page.
    rows = context.runs.page(query.limit + 1, query.cursor, query.state, query.verdict)
    page = [RunSummary.model_validate(row) for row in rows[: query.limit]]
    return RunPage(runs=page, next_cursor=page[-1].id if len(rows) > query.limit else None)


@router.get("/{run_id}", responses=declare(404, 422, *GUARDED))
def get_run(run_id: str, context: ContextOf) -> Run:
    """One run: its state, and the verdict once it is finished."""
    row = context.runs.get(run_id)
    if row is None:
        raise no_such_run(run_id)
    return Run.model_validate(row)


@router.post("/{run_id}/cancel", responses=declare(404, 409, 422, *GUARDED), dependencies=[Depends(needs("submit"))])
def cancel_run(run_id: str, context: ContextOf) -> Run:
    """Take a run out of the queue, or end it where it runs: its ranks are gone within two seconds. Repeating it is
    harmless."""
    try:
        row = context.runs.cancel(run_id)
    except NotCancellable as error:
        detail = f"Run {run_id} is {error.state}; only a queued or running run can be cancelled. It has ended."
        raise Problem(HTTPStatus.CONFLICT, "run-ended", detail) from None
    if row is None:
        raise no_such_run(run_id)
    return Run.model_validate(row)

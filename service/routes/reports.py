"""``/runs/{id}/report`` in the requested form, and the schema of its JSON form.

Special here: the JSON is the stored file, byte for byte as the engine wrote it. Every other form is rendered from
it on request, so a later version's renderer also shows older reports.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import BaseModel, ConfigDict

from service.access import needs
from service.context import ContextOf
from service.problems import GUARDED, Problem, declare, no_such_run
from service.rundir import report_path
from verifier.report.model import Report

router = APIRouter(tags=["reports"], dependencies=[Depends(needs("read"))])

Format = Literal["json", "html", "text", "markdown", "junit"]
_MEDIA_TYPES: dict[Format, str] = {
    "json": "application/json",
    "html": "text/html",
    "text": "text/plain",
    "markdown": "text/markdown",
    "junit": "application/xml",
}
_HEADERS = {
    # The page is one self-contained file without scripts. It shows a strategy's output: even if escaping ever
    # failed, the browser would run and fetch nothing.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept",
}


class ReportQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: Format | None = None


@router.get(
    "/runs/{run_id}/report",
    responses={
        200: {"content": {media: {} for media in _MEDIA_TYPES.values()}, "description": "The report."},
        **declare(404, 406, 409, 410, 422, *GUARDED),
    },
    response_class=Response,
)
def get_report(
    run_id: str,
    query: Annotated[ReportQuery, Query()],
    context: ContextOf,
    accept: Annotated[str, Header(description="which form; `format` goes before it")] = "*/*",
) -> Response:
    """The report of a finished run: JSON, or what `format` or `Accept` names."""
    wanted = query.format or negotiate(accept)
    text = stored_report(run_id, context)
    if wanted != "json":
        from verifier.report import render

        text = render(Report.model_validate_json(text), wanted)
    return Response(text, media_type=_MEDIA_TYPES[wanted], headers=_HEADERS)


@router.get("/schema/report.json", responses=declare(*GUARDED))
def report_schema() -> dict[str, Any]:
    """The JSON Schema of a report."""
    return Report.model_json_schema(mode="serialization")


def stored_report(run_id: str, context: ContextOf) -> str:
    row = context.runs.get(run_id)
    if row is None:
        raise no_such_run(run_id)
    if row.state != "finished":
        wait = f"Wait until GET /runs/{run_id} says that it is finished."
        remedy = wait if row.state in ("queued", "running") else "It will not get one; submit it again."
        detail = f"Run {run_id} is {row.state}; only a finished run has a report. {remedy}"
        raise Problem(HTTPStatus.CONFLICT, "no-report-yet" if wait == remedy else "no-report", detail)
    try:
        return report_path(context.settings.runs_dir, run_id).read_text(encoding="utf-8")
    except FileNotFoundError:
        detail = (
            f"Run {run_id} is finished, but its report is no longer in the data directory. "
            "Submit the run again, or restore the directory from a copy."
        )
        raise Problem(HTTPStatus.GONE, "report-gone", detail) from None


def negotiate(accept: str) -> Format:
    """The form that an Accept header prefers; among equals the first in our order."""
    qualities = {name: _quality(accept, media) for name, media in _MEDIA_TYPES.items()}
    choice: Format = max(_MEDIA_TYPES, key=lambda name: qualities[name])
    if qualities[choice] == 0:
        detail = f"Accept is '{accept[:100]}'; a report can be had as {', '.join(_MEDIA_TYPES.values())}."
        raise Problem(HTTPStatus.NOT_ACCEPTABLE, "not-acceptable", f"{detail} Or add ?format=json.")
    return choice


def _quality(accept: str, media: str) -> float:
    """The header's quality value for this type, from the most specific range that covers it (RFC 9110, 12.5.1)."""
    found: tuple[int, float] = (-1, 0.0)
    for part in accept.split(","):
        range_, *parameters = (piece.strip().lower() for piece in part.split(";"))
        specific = {media: 2, media.partition("/")[0] + "/*": 1, "*/*": 0}.get(range_, -1)
        if specific > found[0]:
            found = (specific, _weight(parameters))
    return found[1]


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0

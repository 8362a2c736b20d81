"""The pages at ``/``: a live list of runs, one run, runs compared; and signing in where keys are required.

Special here: pages are rendered on the server and refreshed by htmx, so they also work without scripts. Nothing is
loaded from elsewhere. A form's POST is accepted only from a page of this service itself (``Origin``): no other site may
submit or cancel with a visitor's cookie, or on a visitor's own machine, where no key is required.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError

from service import artifacts, events
from service.access import COOKIE, asks_for_keys, needs
from service.caller import Caller
from service.context import Context, ContextOf
from service.db import RunRow
from service.problems import Problem, no_such_run
from service.routes.compare import CompareQuery, compare_runs
from service.routes.runs import cancel_run, submit
from service.runs import FINAL
from service.schemas import RunQuery, RunSubmission
from verifier.catalogue import STRATEGIES

router = APIRouter(include_in_schema=False)
SHOWN = 50
STATIC = Path(__file__).parent.parent / "static"
_TEMPLATES = Environment(
    loader=PackageLoader("service"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}
_WEEK_S = 7 * 24 * 3600

Reader = Annotated[Caller, Depends(needs("read"))]
Submitter = Annotated[Caller, Depends(needs("submit"))]


async def own_form(request: Request) -> dict[str, str]:
    """The fields of a form, if one of our pages sent it."""
    origin = request.headers.get("origin")
    if origin is None or urlsplit(origin).netloc != request.headers.get("host"):
        detail = "This form was not sent by a page of this service, so nothing was done. Use the API: POST /runs."
        raise Problem(HTTPStatus.FORBIDDEN, "not-our-form", detail)
    return dict(parse_qsl((await request.body()).decode("utf-8", errors="replace")))


Form = Annotated[dict[str, str], Depends(own_form)]


@router.get("/")
def show_runs(request: Request, query: Annotated[RunQuery, Query()], context: ContextOf, caller: Reader) -> Response:
    rows = context.runs.page(
        SHOWN + 1, query.cursor, query.state, query.verdict, strategy=query.strategy, labels=query.labels()
    )
    chosen = query.model_dump(exclude_defaults=True)
    following = {**chosen, "cursor": rows[SHOWN - 1].id} if len(rows) > SHOWN else None
    return page(
        request,
        "runs",
        runs=rows[:SHOWN],
        query=chosen,
        here=_address(chosen),
        next_page=_address(following) if following else None,
        strategies=STRATEGIES.names(),
        states=("queued", "running", *FINAL),
    )


@router.get("/pages/runs/{run_id}")
def show_run(request: Request, run_id: str, context: ContextOf, caller: Reader) -> Response:
    row = context.runs.get(run_id)
    if row is None:
        raise no_such_run(run_id)
    ended = row.state in FINAL
    return page(
        request,
        "run",
        run=row,
        ended=ended,
        before=_before(context, row) if row.state == "finished" else None,
        events=events.after(context.engine, run_id, 0)[-100:],
        artifacts=artifacts.listed(context.settings.runs_dir / run_id)[:200] if ended else [],
    )


def _before(context: Context, row: RunRow) -> str | None:
    """The id of the last finished run of the same strategy before ``row``."""
    found = context.runs.page(1, row.id, "finished", None, strategy=row.strategy)
    return found[0].id if found else None


@router.get("/pages/compare")
def show_comparison(
    request: Request, query: Annotated[CompareQuery, Query()], context: ContextOf, caller: Reader
) -> Response:
    rows = [context.runs.get(run_id) for run_id in query.run]
    return page(request, "compare", comparison=compare_runs(query, context), runs=rows)


@router.post("/pages/runs")
def submit_form(form: Form, context: ContextOf, caller: Submitter) -> Response:
    strategy = {"kind": "builtin", "name": form.pop("strategy", "")}
    try:
        submission = RunSubmission.model_validate({"strategy": strategy, **form})
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
    run = submit(submission, context, caller)
    return RedirectResponse(f"/pages/runs/{run.id}", HTTPStatus.SEE_OTHER)


@router.post("/pages/runs/{run_id}/cancel")
def cancel_form(run_id: str, form: Form, context: ContextOf, caller: Submitter) -> Response:
    cancel_run(run_id, context, caller)
    return RedirectResponse(f"/pages/runs/{run_id}", HTTPStatus.SEE_OTHER)


@router.get("/login")
def show_login(request: Request) -> Response:
    return page(request, "login", problem=None)


@router.post("/login")
def login(request: Request, form: Form, context: ContextOf) -> Response:
    key = form.get("key", "").strip()
    caller = context.keys.caller(key)
    if caller is None:
        problem = "This key is not known here, or was revoked."
        return page(request, "login", status=HTTPStatus.UNAUTHORIZED, problem=problem)
    answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, key, max_age=_WEEK_S, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout")
def logout(form: Form) -> Response:
    answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    answer.delete_cookie(COOKIE)
    return answer


def _address(query: Mapping[str, Any]) -> str:
    return f"/?{urlencode(query, doseq=True)}" if query else "/"


def page(request: Request, name: str, *, status: HTTPStatus = HTTPStatus.OK, **values: Any) -> Response:
    signed_in = asks_for_keys(request.app.state.context.settings) and COOKIE in request.cookies
    text = _TEMPLATES.get_template(f"{name}.html.jinja").render(signed_in=signed_in, **values)
    return HTMLResponse(text, status, _HEADERS)

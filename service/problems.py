"""Errors as bodies of RFC 9457 (``application/problem+json``), and their declaration in the OpenAPI document.

Special here: the handlers cover all errors, the framework's own too, so every error has this form. ``declare`` puts the
codes that an endpoint may answer into its description, and tests check that it answers no others.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from service.limits import TooMuch
from verifier.errors import UsageError

GUARDED = (401, 403, 429)  # codes of every route that may require a key
MEDIA_TYPE = "application/problem+json"
log = structlog.get_logger()


class FieldProblem(BaseModel):
    """One value that was not accepted."""

    field: str = Field(examples=["body.world_size"])
    message: str = Field(description="the rule that it broke")
    value: str | None = Field(None, description="the value, shortened")


class ProblemBody(BaseModel):
    """The body of an error: the value, the rule, the remedy."""

    type: str = Field(description="a stable name of this kind of problem", examples=["urn:lockstep:no-such-run"])
    title: str
    status: int
    detail: str = Field(description="a sentence for a person")
    instance: str = Field(description="the path that was asked for")
    errors: list[FieldProblem] = Field(default_factory=list)


class Problem(Exception):
    """An error answer; raise it anywhere below a route."""

    def __init__(self, status: HTTPStatus, kind: str, detail: str, errors: list[FieldProblem] | None = None) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.errors = status, kind, detail, errors or []


def no_such_run(run_id: str) -> Problem:
    shown = run_id if len(run_id) <= 60 else run_id[:60] + "..."
    return Problem(
        HTTPStatus.NOT_FOUND, "no-such-run", f"There is no run '{shown}'. GET /runs lists the runs there are."
    )


def declare(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that an endpoint may answer with. All include an unreachable database and an internal error."""
    all_of_them = sorted({*statuses, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE})
    return {int(s): {"model": ProblemBody, "description": HTTPStatus(s).phrase} for s in all_of_them}


def install(app: FastAPI) -> None:
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(UsageError, _usage)
    app.add_exception_handler(TooMuch, _too_much)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DBAPIError, _database)
    app.add_exception_handler(PoolTimeout, _database)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]


def _answer(request: Request, problem: Problem, headers: dict[str, str] | None = None) -> JSONResponse:
    body = ProblemBody(
        type=f"urn:lockstep:{problem.kind}",
        title=problem.status.phrase,
        status=problem.status,
        detail=problem.detail,
        instance=request.url.path,
        errors=problem.errors,
    )
    return JSONResponse(body.model_dump(mode="json"), problem.status, headers, media_type=MEDIA_TYPE)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    wants_page = request.url.path == "/" or request.url.path.startswith("/pages/")
    if error.status == HTTPStatus.UNAUTHORIZED and wants_page:
        return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    challenge = {"WWW-Authenticate": "Bearer"} if error.status == HTTPStatus.UNAUTHORIZED else None
    return _answer(request, error, challenge)


async def _usage(request: Request, error: Exception) -> JSONResponse:
    return _answer(request, Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "cannot-be-verified", str(error)))


async def _too_much(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TooMuch)
    log.warning("too much asked for", path=request.url.path, kind=error.kind)
    detail = f"{error.detail} Try again in {error.retry_after_s} s."
    problem = Problem(HTTPStatus.TOO_MANY_REQUESTS, error.kind, detail)
    return _answer(request, problem, {"Retry-After": str(error.retry_after_s)})


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = [_field(entry) for entry in error.errors()]
    said = "; ".join(f"{e.field}: {e.message}" + (f" (it is {e.value})" if e.value else "") for e in errors[:5])
    more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
    detail = f"{said}{more}. GET /openapi.json says what is accepted."
    return _answer(request, Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-request", detail, errors))


def _field(entry: dict[str, Any]) -> FieldProblem:
    # A missing field has no value, and of a body that is not JSON only the position of the error is known.
    shown = None if entry["type"] in ("missing", "json_invalid") else _shorten(entry.get("input"))
    reason = str(entry.get("ctx", {}).get("error", "")) if entry["type"] == "json_invalid" else ""
    message = entry["msg"].removeprefix("Value error, ") + (f": {reason}" if reason else "")
    return FieldProblem(field=".".join(str(part) for part in entry["loc"]), message=message, value=shown)


def _shorten(value: object) -> str:
    text = ascii(value)  # the value may hold characters that cannot be encoded
    return text if len(text) <= 100 else text[:100] + "..."


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    detail = str(error.detail)
    if status == HTTPStatus.NOT_FOUND:
        detail = f"There is nothing at {request.url.path}. GET /openapi.json lists what there is."
    elif status == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "another method")
        detail = f"{request.method} is not possible at {request.url.path}; {allowed} is."
    elif status == HTTPStatus.BAD_REQUEST:
        detail = "The body could not be read as JSON. Send UTF-8 text that is not nested hundreds of levels deep."
    elif status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        most = request.app.state.context.settings.max_body_bytes
        detail = f"The body is larger than {most} bytes (LOCKSTEP_MAX_BODY_BYTES). Send less, or ask the operator."
    headers = dict(error.headers) if error.headers else None
    return _answer(request, Problem(status, status.phrase.lower().replace(" ", "-"), detail), headers)


async def _database(request: Request, error: Exception) -> JSONResponse:
    log.error("database error", path=request.url.path, error=str(error).splitlines()[0])
    detail = "The database did not answer, so nothing was done. Try again; if it lasts, see the service's log."
    problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, "database-unavailable", detail)
    return _answer(request, problem, {"Retry-After": "5"})


async def ours(request: Request, error: Exception) -> JSONResponse:
    """The answer to an uncaught exception."""
    log.error("unexpected error", path=request.url.path, exc_info=error)
    detail = "The service made a mistake; its log holds the details. The request may be repeated."
    return _answer(request, Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", detail))


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's OpenAPI document, with the actual media type and body of errors, and with keys only where they are
    required."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        reference = {"schema": {"$ref": "#/components/schemas/ProblemBody"}}
        for operation in (o for path in document["paths"].values() for o in path.values()):
            if not app.state.asks_for_keys:
                operation.pop("security", None)
            for response in operation["responses"].values():
                if reference in response.get("content", {}).values():  # FastAPI lists it under the stream's type too
                    response["content"] = {MEDIA_TYPE: reference}
        app.openapi_schema = document
    return app.openapi_schema

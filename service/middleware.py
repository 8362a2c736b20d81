"""The middleware of every request and answer: an id for the log, safe headers, timing, a limit of the body's size.

Special here: it is plain ASGI, so a stream passes through unbuffered. Metrics are kept by the route's template, not the
path: paths hold ids, so their number is unlimited.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable
from http import HTTPMethod, HTTPStatus
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import Metrics

REQUEST_ID = "X-Request-Id"
_GIVEN_ID = re.compile(r"[\w.:/+=-]{1,100}")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-store",
}
_METHODS = frozenset(HTTPMethod)
Failed = Callable[[Request, Exception], Awaitable[Response]]
log = structlog.get_logger()


class Outermost:
    """Wraps the whole app. ``failed`` makes the answer to an uncaught exception. It is called in here, so that this
    answer has an id and safe headers, and is counted, like any other.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, max_body_bytes: int, failed: Failed) -> None:
        self._app, self._metrics, self._max_body_bytes, self._failed = app, metrics, max_body_bytes, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        identity = given if _GIVEN_ID.fullmatch(given) else secrets.token_hex(8)
        begun, started = time.perf_counter(), False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _complete(MutableHeaders(scope=message), identity)
                self._note(scope, message["status"], time.perf_counter() - begun)
            await send(message)

        with structlog.contextvars.bound_contextvars(request=identity):
            try:
                await self._app(scope, _limited(receive, self._max_body_bytes), answer)
            except Exception as error:
                if started:  # the answer has begun, so the connection must end
                    raise
                response = await self._failed(Request(scope), error)
                await response(scope, receive, answer)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route: Any = scope.get("route")
        template = getattr(route, "path", "none")
        # A client may invent any number of methods, and each would make a time series of its own.
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.saw(method, template, status, seconds)
        if scope["method"] not in ("GET", "HEAD") or status >= 400:
            caller = scope.get("state", {}).get("caller")
            log.info(
                "request",
                method=scope["method"],
                path=scope["path"][:200],
                status=status,
                ms=round(seconds * 1000, 1),
                key=caller.id if caller is not None and caller.has_key else None,
            )


def _limited(receive: Receive, most: int) -> Receive:
    """Wrap ``receive`` so that it raises, for an answer of 413, when the body exceeds ``most`` bytes. It does not use
    the announced length, because a request may announce none."""
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return message

    return limited


def _complete(headers: MutableHeaders, identity: str) -> None:
    headers[REQUEST_ID] = identity
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)  # a route may have set a more exact value

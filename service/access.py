"""Checks callers' permissions: ``Depends(needs("submit"))`` on a router or a route.

Special here: keys are required unless only this machine can reach the service, which is decided by the address that it
listens on (or, in a container, by the one that it is published on). There is no other way to switch keys off.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.caller import EVERYBODY, Caller, Scope
from service.context import Context, ContextOf
from service.problems import Problem
from service.settings import Settings

COOKIE = "lockstep_key"
PAGES = "/pages/"
_bearer = HTTPBearer(auto_error=False, description="a key made with `lockstep keys add`")


def asks_for_keys(settings: Settings) -> bool:
    return not is_loopback(settings.published_on or settings.host)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def needs(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """The dependency that admits a caller whose scope covers ``scope``."""

    async def let_through(
        request: Request,
        context: ContextOf,
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None,
    ) -> Caller:
        caller: Caller | None = getattr(request.state, "caller", None)
        if caller is None:  # a router and its route may both check: count and look up once per request
            caller = await _known(request, context, _token(request, given))
            context.limits.request(caller)
            request.state.caller = caller
        if not caller.may(scope):
            detail = f"The key '{caller.name}' may {caller.scope}, and this needs {scope}."
            raise Problem(HTTPStatus.FORBIDDEN, "scope-too-narrow", detail)
        return caller

    return let_through


async def _known(request: Request, context: Context, token: str | None) -> Caller:
    """The caller and its address. Queries the database, in a thread, only where keys are required."""
    if asks_for_keys(context.settings):
        caller = await run_in_threadpool(_who, context, token)
    else:
        _check_host(request.headers.get("host", ""), context.settings)
        caller = EVERYBODY
    return replace(caller, address=request.client.host if request.client else None)


def _check_host(header: str, settings: Settings) -> None:
    """Refuse a request without a key whose ``Host`` does not name this machine. Otherwise a foreign page whose name
    resolves to this machine (DNS rebinding) could send requests through a visitor's browser."""
    try:
        host = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        host = ""
    allowed = {name.strip() for name in settings.allowed_hosts.split(",")} - {""}
    if "@" in header or not (is_loopback(host) or host in allowed):
        detail = (
            f"This service asks for no key, because only its own machine reaches it; and this request was for "
            f"'{header[:100]}'. Ask for http://127.0.0.1:{settings.port}, or name that host in LOCKSTEP_ALLOWED_HOSTS."
        )
        raise Problem(HTTPStatus.FORBIDDEN, "not-this-machine", detail)


def _token(request: Request, given: HTTPAuthorizationCredentials | None) -> str | None:
    """The key that was sent. A browser sends it as a cookie, which is accepted for our pages and for reading."""
    if given is not None:
        return given.credentials
    reads = request.method in ("GET", "HEAD") or request.url.path.startswith(PAGES)
    return request.cookies.get(COOKIE) if reads else None


def _who(context: Context, given: str | None) -> Caller:
    caller = context.keys.caller(given) if given is not None else None
    if caller is None:
        detail = (
            "This service asks for an API key: send 'Authorization: Bearer lsk_...'. Its operator makes one with "
            "'lockstep keys add NAME'."
            if given is None
            else "This API key is not known here, or was revoked. Ask the operator for another."
        )
        raise Problem(HTTPStatus.UNAUTHORIZED, "no-valid-key", detail)
    return caller

"""Who may ask for what: ``Depends(needs("submit"))`` on a router or a route.

Special here: keys are asked for unless nobody but this machine can reach the service, which is judged by the address
that it listens on (or, in a container, by the one that it is published on). There is no other way to switch them off.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.caller import EVERYBODY, Caller, Scope
from service.context import ContextOf
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


def needs(scope: Scope) -> Callable[..., Caller]:
    """The dependency that lets through who may ``scope``."""

    def let_through(
        request: Request,
        context: ContextOf,
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)] = None,
    ) -> Caller:
        caller = replace(_who(context, _token(request, given)), address=request.client.host if request.client else None)
        if not caller.may(scope):
            detail = f"The key '{caller.name}' may {caller.scope}, and this needs {scope}."
            raise Problem(HTTPStatus.FORBIDDEN, "scope-too-narrow", detail)
        if not getattr(request.state, "caller", None):  # a route may need more than its router: it is one request
            context.limits.request(caller)
        request.state.caller = caller
        return caller

    return let_through


def _token(request: Request, given: HTTPAuthorizationCredentials | None) -> str | None:
    """The key that was sent; a browser's is a cookie, which opens our pages, and what may be read."""
    if given is not None:
        return given.credentials
    reads = request.method in ("GET", "HEAD") or request.url.path.startswith(PAGES)
    return request.cookies.get(COOKIE) if reads else None


def _who(context: ContextOf, given: str | None) -> Caller:
    if not asks_for_keys(context.settings):
        return EVERYBODY
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

"""The caller of a request, and its scope: one of three, each of which includes those before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["read", "submit", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True)
class Caller:
    """The holder of an API key, or ``EVERYBODY`` where no key is required."""

    id: str
    name: str
    scope: Scope
    address: str | None = None

    def may(self, scope: Scope) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(scope)

    @property
    def has_key(self) -> bool:
        return self.id not in (EVERYBODY.id, COMMAND_LINE)


COMMAND_LINE = "command line"
EVERYBODY = Caller("none", "no keys are asked for", "admin")

"""The errors by which a request is refused before anything runs, and the one for our own mistakes.

A refusal carries a sentence for a person: the value, the rule it broke, the remedy. The command prints it and exits
with 2; the service answers 422 with it. It is never raised for something a *strategy* did wrong: that is a finding, and
belongs in the report.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """The request cannot be carried out as it stands. The message says why and what would work."""


class OurFault(Exception):
    """The verifier itself failed while a strategy was running. Never blamed on the strategy."""


class UnknownName(UsageError):
    """A name that no catalogue holds; the message has the nearest one, and all valid ones or who lists them."""

    def __init__(self, kind: str, name: str, valid: Iterable[str], *, listed_by: str | None = None) -> None:
        names = sorted(valid)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.55)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        every = f"{listed_by}." if listed_by else f"Valid names: {', '.join(names)}."
        super().__init__(f"There is no {kind} '{name}'.{hint} {every}")
        self.kind, self.name, self.valid, self.nearest = kind, name, names, near[0] if near else None

"""What a check is: a pure function of one recording, with a stable code, found by its file.

Special here: a check counts its comparisons, and reports when it could not compare. ``judging`` derives the verdict
from that. This module imports next to nothing, because ``import verifier`` imports it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from verifier.recording import Recording
    from verifier.scenario import Scenario
    from verifier.verdict import Failure


@dataclass
class Findings:
    """What a check found in one recording. ``blocked`` is the reason why something could not be compared.

    ``aside``: what was compared can fail the check, but is no reason to pass it where its claim is not claimed.
    """

    comparisons: int = 0
    failures: list[Failure] = field(default_factory=list)
    margin: float | None = None
    blocked: str | None = None
    not_claimed: str | None = None
    aside: bool = False

    def note_margin(self, margin: float) -> None:
        """Keep the largest margin. It may be infinite: an error where the bound is 0."""
        self.margin = margin if self.margin is None else max(self.margin, margin)


@dataclass(frozen=True)
class Check:
    """A check: its code (LS201), its name, what it claims, and the function that judges."""

    code: str
    name: str
    judge: Callable[[Recording], Findings]
    claim: str  # the module's docstring: Claim, Catches, Blind to, Seen in the wild, Remedy
    when: Callable[[Scenario], bool] | None = None
    always: bool = False  # reads every scenario, even one that names other checks as its judges

    def wants(self, scenario: Scenario) -> bool:
        """Return whether ``scenario`` is meant for this check, and the check can conclude anything from it."""
        meant = self.always or scenario.judged_by is None or self.code in scenario.judged_by
        return meant and (self.when is None or self.when(scenario))


Judge = Callable[["Recording"], Findings]


@overload
def check(judge: Judge) -> Check: ...
@overload
def check(*, when: Callable[[Scenario], bool] | None = None, always: bool = False) -> Callable[[Judge], Check]: ...
def check(judge: Judge | None = None, *, when: Callable[[Scenario], bool] | None = None, always: bool = False) -> Any:
    """Make the function of a file ``lsNNN_name.py`` into the check LSNNN. Code and name come from the file.

    ``when`` selects the scenarios that the check reads. By default a scenario that names other checks as its judges is
    skipped; with ``always`` it is read as well.
    """

    def make(judge: Judge) -> Check:
        module = inspect.getmodule(judge)
        stem = judge.__module__.rpartition(".")[2]
        return Check(stem[:5].upper(), stem[6:], judge, inspect.getdoc(module) or "", when, always)

    return make if judge is None else make(judge)

"""Verdicts: what a check concluded, where, and why. Plain data that all later stages only read.

Special here: one rule, in ``combine``: *fail* beats *unknown* beats *pass*, and no verdict at all is *unknown*.
An incomplete run can fail, but it cannot pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Verdict = Literal["pass", "fail", "unknown"]


class Failure(BaseModel):
    """One place where what was observed is not what was expected, and why that may be."""

    model_config = ConfigDict(extra="forbid")
    scenario: str
    step: int | None = Field(None, description="optimizer step, counted from 0")
    rank: int | None = None
    parameter: str | None = None
    bucket: int | None = Field(None, description="place in the order of this rank's collectives of this step")
    index: list[int] | None = Field(None, description="the element that differs most")
    expected: str | None = None
    observed: str | None = None
    cause: str | None = Field(None, description="a stable name from verifier.judge.diagnosis; None: no pattern fits")
    confidence: float = Field(0.0, ge=0, le=1)
    explanation: str
    hint: str | None = None


NOT_TRIED = "no scenario that was run tests this"
UNCLAIMED = "the strategy does not claim "  # what it does not claim follows: reports group reasons by this prefix
DISCLAIMED = "the strategy disclaims "


class CheckResult(BaseModel):
    """What one check concluded from all recordings. ``failures`` holds the first few; ``failed`` counts all."""

    model_config = ConfigDict(extra="forbid")
    code: str
    name: str
    verdict: Verdict
    claimed: bool = Field(True, description="false: the strategy does not claim this, or it cannot apply here")
    comparisons: int = 0
    failed: int = 0
    margin: float | None = Field(None, description="largest error as a fraction of the bound; at most 1 passes")
    why: str | None = Field(None, description="why the verdict is unknown, or why this is not claimed")
    failures: list[Failure] = Field(default_factory=list)
    failed_in: list[str] = Field(default_factory=list, description="all scenarios in which it failed")

    @property
    def elsewhere(self) -> list[str]:
        """The scenarios in which it failed that are not among ``failures``."""
        told = {failure.scenario for failure in self.failures}
        return [name for name in self.failed_in if name not in told]

    @property
    def shown(self) -> str:
        """The verdict for a table, with *unknown* split by whether the contract or the profile left the check out."""
        if self.claimed:
            return self.verdict
        return "not tried" if self.why == NOT_TRIED else "not claimed"


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Combine the verdicts of the parts into the verdict of the whole."""
    seen = set(verdicts)
    if "fail" in seen:
        return "fail"
    return "pass" if seen == {"pass"} else "unknown"

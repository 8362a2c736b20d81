"""The report: what was tried, what was compared, what was found. Plain data; its JSON form is public.

Special here: the JSON document carries its own schema version, and ``Report.model_json_schema()`` is what the
service serves at ``/schema/report.json``. Fields may be added within a version, never renamed or removed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from verifier.verdict import DISCLAIMED, UNCLAIMED, CheckResult, Failure, Verdict

__all__ = ["CheckResult", "Failure", "RankOutcome", "Repeat", "Report", "ScenarioResult", "Verdict"]
SCHEMA_VERSION = 1
CRASHES = tuple(
    f"{name}Error:" for name in ("Attribute", "Import", "Index", "Key", "ModuleNotFound", "Name", "UnboundLocal")
)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RankOutcome(_Model):
    """How one rank of one scenario ended."""

    rank: int
    status: Literal["completed", "raised", "died", "hung", "stopped"]
    detail: str | None = Field(None, description="the strategy's own traceback, the signal, or what it waits for")
    stack: str | None = None
    output: str | None = Field(None, description="the end of what the rank printed")


class ScenarioResult(_Model):
    """One scenario as it was run."""

    name: str
    workload: str
    world_size: int
    num_steps: int
    num_micro_batches: int
    driver: str | None = None
    own_rule: str | None = Field(None, description="the optimizer whose update rule is the strategy's own")
    complete: bool
    refused: str | None = Field(None, description="what the strategy said when it refused what it does not claim")
    not_claimed: str | None = Field(None, description="why the strategy was not put through it, or not to its end")
    seconds: float
    ranks: list[RankOutcome] = Field(default_factory=list)
    losses: list[float] = Field(default_factory=list, description="rank 0's own loss, by step")
    evaluation: dict[str, float] = Field(default_factory=dict, description="the workload's figures at the end")
    timeline: list[dict[str, Any]] = Field(default_factory=list, description="collectives, for the plot")

    @property
    def how_refused(self) -> str:
        """How it refused: an error not raised on purpose is a crash. Either way the situation is not claimed."""
        return "crashed, where it claims nothing" if (self.refused or "").startswith(CRASHES) else "refused, as it may"


class Repeat(_Model):
    command: str
    script: str | None = None


class Report(_Model):
    """A verification, whole."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    schema_version: int = Field(SCHEMA_VERSION, alias="schema")
    verdict: Verdict
    summary: str = Field("", description="one sentence for a person")
    strategy: dict[str, Any]
    request: dict[str, Any] = Field(default_factory=dict)
    scenarios: list[ScenarioResult] = Field(default_factory=list)
    environment: dict[str, Any] = Field(default_factory=dict)
    checks: list[CheckResult] = Field(default_factory=list)
    problems: list[str] = Field(default_factory=list, description="why the verdict is unknown, if it is")
    communication: dict[str, Any] = Field(default_factory=dict)
    timings: dict[str, Any] = Field(default_factory=dict)
    repeat: Repeat | None = None

    def left_out(self) -> list[tuple[str, str]]:
        """(names of scenarios, why the strategy was not tried in them or not to their end), each reason once."""
        names: dict[str, list[str]] = {}
        claims: dict[str, list[str]] = {}
        for scenario in self.scenarios:
            if (reason := scenario.not_claimed) is not None:
                said = next((words for words in (UNCLAIMED, DISCLAIMED) if reason.startswith(words)), reason)
                names.setdefault(said, []).append(scenario.name)
                claims.setdefault(said, []).append(reason.removeprefix(said))
        return [(", ".join(of), said + ", ".join(dict.fromkeys(claims[said]))) for said, of in names.items()]

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True, indent=2)

    def assert_pass(self) -> None:
        """Raise AssertionError with the readable report unless the verdict is ``pass``."""
        if self.verdict != "pass":
            from verifier.report.text import render

            raise AssertionError(render(self))

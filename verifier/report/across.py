"""Several reports side by side: which checks changed their verdict, what else differs, how long each took.

Special here: a pure function of reports, in the order given. A check that a report does not have is None there, which
is not the same as unknown. Of the environment and the request only what differs is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table

from verifier.report.model import CheckResult, Report
from verifier.verdict import Verdict

ABSENT = "-"
Outcome = Literal["pass", "fail", "unknown", "not claimed"]  # of a check; the last means that nothing was judged


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CheckAcross(_Model):
    """One check in every report."""

    code: str
    name: str
    verdicts: list[Outcome | None] = Field(description="in the reports' order; null: this report does not have it")
    margins: list[float | None] = Field(description="largest error as a fraction of the bound")
    causes: list[str | None] = Field(description="of the first failure")
    changed: bool = Field(description="the verdicts are not all the same")


class FieldAcross(_Model):
    """Something that is not the same in every report."""

    name: str = Field(examples=["environment.torch", "request.world_size"])
    values: list[Any]


class SecondsAcross(_Model):
    """How long something took in every report."""

    name: str
    seconds: list[float | None]


class Comparison(_Model):
    """Reports side by side. Every list in here has one entry for each, in their order."""

    names: list[str]
    verdicts: list[Verdict]
    changed: bool = Field(description="the verdict of the whole, or of a check, is not the same in all")
    checks: list[CheckAcross]
    differences: list[FieldAcross]
    timings: list[SecondsAcross]


def compare(reports: Sequence[Report], names: Sequence[str]) -> Comparison:
    """Compare ``reports``, called ``names``, side by side.

    Raises:
        ValueError: fewer than two reports, or not as many names.
    """
    if len(reports) < 2 or len(reports) != len(names):
        raise ValueError(f"there are {len(reports)} reports with {len(names)} names; two reports or more are compared")
    checks = [_check(code, name, reports) for code, name in sorted(_all_checks(reports).items())]
    verdicts = [report.verdict for report in reports]
    return Comparison(
        names=list(names),
        verdicts=verdicts,
        changed=len(set(verdicts)) > 1 or any(check.changed for check in checks),
        checks=checks,
        differences=[*_differences("request", reports), *_differences("environment", reports)],
        timings=_timings(reports),
    )


def _all_checks(reports: Sequence[Report]) -> dict[str, str]:
    return {check.code: check.name for report in reports for check in report.checks}


def _check(code: str, name: str, reports: Sequence[Report]) -> CheckAcross:
    found = [next((check for check in report.checks if check.code == code), None) for report in reports]
    verdicts = [_outcome(check) if check else None for check in found]
    return CheckAcross(
        code=code,
        name=name,
        verdicts=verdicts,
        margins=[check.margin if check else None for check in found],
        causes=[check.failures[0].cause if check and check.failures else None for check in found],
        changed=len(set(verdicts)) > 1,
    )


def _outcome(check: CheckResult) -> Outcome:
    return check.verdict if check.claimed else "not claimed"


def _differences(part: str, reports: Sequence[Report]) -> list[FieldAcross]:
    parts: list[dict[str, Any]] = [getattr(report, part) for report in reports]
    rows = {name: [each.get(name) for each in parts] for name in sorted({name for each in parts for name in each})}
    return [
        FieldAcross(name=f"{part}.{name}", values=values)
        for name, values in rows.items()
        if any(value != values[0] for value in values)
    ]


def _timings(reports: Sequence[Report]) -> list[SecondsAcross]:
    """The total time, and the time of every scenario that at least two reports have."""
    rows = {"total": [_seconds(report.timings.get("total_s")) for report in reports]}
    scenarios = {scenario.name: None for report in reports for scenario in report.scenarios}
    for name in scenarios:
        taken = [next((s.seconds for s in report.scenarios if s.name == name), None) for report in reports]
        if sum(seconds is not None for seconds in taken) > 1:
            rows[name] = taken
    return [SecondsAcross(name=name, seconds=seconds) for name, seconds in rows.items()]


def _seconds(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def as_table(comparison: Comparison) -> Table:
    """A table for a terminal of what changed and how long it took."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in comparison.names:
        table.add_column(name, overflow="fold")
    table.add_row("verdict", *comparison.verdicts)
    for check in comparison.checks:
        if check.changed:
            verdicts = (_verdict(check, place) for place in range(len(check.verdicts)))
            table.add_row(f"{check.code} {check.name}", *verdicts)
    for field in comparison.differences:
        table.add_row(field.name, *(str(value) for value in field.values))
    for row in comparison.timings:
        table.add_row(f"{row.name}, s", *(ABSENT if value is None else f"{value:.2f}" for value in row.seconds))
    return table


def _verdict(check: CheckAcross, place: int) -> str:
    verdict, cause = check.verdicts[place], check.causes[place]
    return f"{verdict or ABSENT}{f' ({cause})' if cause else ''}"

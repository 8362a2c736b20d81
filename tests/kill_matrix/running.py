"""Trying one subject, and what came of it against what was expected. One warm launcher serves all.

Special here: nothing is retried. A verdict that differs once is a verdict that flips.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.kill_matrix.population import Subject
from verifier import engine
from verifier.launcher import Launcher
from verifier.report.build import tells_most
from verifier.report.model import Report
from verifier.request import Request
from verifier.verdict import Failure

OURS = "the verifier itself failed"  # whatever a row is there for, it may not be that it breaks the observer


@dataclass(frozen=True)
class Trial:
    """One verification of one subject. ``cells``: verdict by check code, ``not claimed`` included."""

    subject: Subject
    world_size: int
    seed: int
    delay_ms: float
    cells: dict[str, str]
    leading: Failure | None  # what the report tells first
    incomplete: list[str] = field(default_factory=list)
    drivers: frozenset[str] = frozenset()  # the styles recognised
    seconds: float = 0.0

    @property
    def failed(self) -> frozenset[str]:
        return frozenset(code for code, verdict in self.cells.items() if verdict == "fail")

    @property
    def as_expected(self) -> bool:
        right = self.failed == self.subject.trips and not any(OURS in reason for reason in self.incomplete)
        if not self.subject.faulty:
            right = right and "unknown" not in self.cells.values() and not self.incomplete
        return right

    def complaint(self) -> str:
        """What is not as expected, in a line."""
        where = (
            f"{self.subject.kind} {self.subject.name} (W={self.world_size}, seed {self.seed}, delay {self.delay_ms})"
        )
        missed, extra = self.subject.trips - self.failed, self.failed - self.subject.trips
        unknown = [code for code, verdict in self.cells.items() if verdict == "unknown"]
        parts = [f"missed {', '.join(sorted(missed))}"] if missed else []
        parts += [f"also tripped {', '.join(sorted(extra))}"] if extra else []
        parts += [f"unknown: {', '.join(unknown)}"] if unknown and not self.subject.faulty else []
        parts += self.incomplete[:2]
        return f"{where}: {'; '.join(parts)}"


def try_subject(
    subject: Subject, launcher: Launcher, *, world_size: int = 3, seed: int = 0, delay_ms: float = 0.0
) -> Trial:
    while world_size in subject.right_at:
        world_size += 1
    request = Request(
        strategy=subject.strategy, world_size=world_size, fault=subject.fault, seed=seed, delay_ms=delay_ms, trust=True
    )
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        report = engine.run(request, Path(folder), launcher=launcher)
    cells = {check.code: check.verdict if check.claimed else "not claimed" for check in report.checks}
    total = float(report.timings.get("total_s") or 0.0)
    return Trial(
        subject,
        world_size,
        seed,
        delay_ms,
        cells,
        leading_failure(report),
        report.problems,
        frozenset(scenario.driver for scenario in report.scenarios if scenario.driver),
        total,
    )


def keep(trial: Trial, folder: Path) -> None:
    """Write ``trial`` down; ``python -m tests.kill_matrix --from FOLDER`` makes the page of what was kept."""
    leading = trial.leading.model_dump() if trial.leading else None
    told = {"world_size": trial.world_size, "seed": trial.seed, "delay_ms": trial.delay_ms, "cells": trial.cells}
    folder.mkdir(parents=True, exist_ok=True)
    _file(trial.subject, folder, trial.seed).write_text(
        json.dumps({**told, "leading": leading, "incomplete": trial.incomplete})
    )


def kept(subject: Subject, folder: Path, seed: int = 0) -> Trial | None:
    """The trial of ``subject`` with ``seed`` that was kept in ``folder``: a repetition is another seed."""
    file = _file(subject, folder, seed)
    if not file.exists():
        return None
    told = json.loads(file.read_text())
    leading = told.pop("leading")
    return Trial(subject=subject, leading=Failure(**leading) if leading else None, **told)


def _file(subject: Subject, folder: Path, seed: int) -> Path:
    return folder / f"{subject.kind}-{subject.name}-{seed}.json"


def leading_failure(report: Report) -> Failure | None:
    """The failure that the report's summary tells of: the surest that is not a mere consequence."""
    failures = [failure for check in report.checks for failure in check.failures]
    return max(failures, key=tells_most, default=None)

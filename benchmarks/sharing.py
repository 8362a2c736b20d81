"""Checks that ``quick`` gives the same verdicts with shared processes as with processes of its own for each scenario.

Special here: every subject of the kill matrix is verified both ways, and each with a different verdict, or different
failed checks, is named. There must be none: processes are shared only for speed.

    python -m benchmarks.sharing [--only WORD]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.kill_matrix.population import Subject, everybody
from verifier import engine
from verifier.launcher import Launcher
from verifier.request import Request
from verifier.scenario import Scenario


class Apart:
    """A launcher that cannot run several scenarios in the same processes."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def run(self, scenario: Scenario, folder: Path, timeout_s: float) -> dict[str, Any]:
        return self._launcher.run(scenario, folder, timeout_s)


def asked(subject: Subject, launcher: Any) -> tuple[str, list[str]]:
    """The verdict on 2 ranks, and the codes of the checks that fail."""
    request = Request(strategy=subject.strategy, fault=subject.fault, world_size=2, profile="quick", trust=True)
    with tempfile.TemporaryDirectory() as folder:
        report = engine.run(request, Path(folder), launcher=launcher)
    return report.verdict, [check.code for check in report.checks if check.verdict == "fail"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="only names that contain this")
    subjects = [subject for subject in everybody() if parser.parse_args().only in subject.name]
    others = 0
    with engine.start_launcher() as launcher:
        for subject in subjects:
            together, apart = asked(subject, launcher), asked(subject, Apart(launcher))
            others += together != apart
            print(f"{'same ' if together == apart else 'OTHER'} {subject.name}: {together}, apart {apart}", flush=True)
    print(f"{len(subjects)} asked both ways, {others} told otherwise")
    return min(others, 1)


if __name__ == "__main__":
    sys.exit(main())

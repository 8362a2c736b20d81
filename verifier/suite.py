"""``lockstep verify all``: every built-in strategy, one after the other, over one warm launcher, in one table.

Special here: it only calls ``engine.run`` in a loop. Each strategy's recording and page are in a folder of its own
below the output folder, and ``index.html`` links them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.table import Table
from rich.text import Text

from verifier import catalogue, engine
from verifier.files import write_atomically
from verifier.launcher import Launcher
from verifier.report import render
from verifier.report.model import Report
from verifier.report.text import COLOURS
from verifier.request import Builtin, Request
from verifier.verdict import Verdict, combine


def run_all(
    request: Request, out_dir: Path, *, launcher: Launcher, progress: engine.Progress | None = None
) -> dict[str, Report]:
    """Run ``request`` for every built-in strategy; write each one's report and the index; return reports by name.

    Raises:
        UsageError: as ``engine.run``.
    """
    reports = {}
    for name in catalogue.STRATEGIES.names():
        tell = None if progress is None else (lambda text, name=name: progress(f"{name}: {text}"))
        one = request.model_copy(update={"strategy": Builtin(name=name, options=request.strategy.options)})
        reports[name] = engine.run(one, out_dir / name, launcher=launcher, progress=tell)
        write_atomically(out_dir / name / "report.html", render(reports[name], "html"))
    write_atomically(out_dir / "index.html", render_all(reports, "html"))
    return reports


def verdict_of(reports: Mapping[str, Report]) -> Verdict:
    return combine(report.verdict for report in reports.values())


def table(reports: Mapping[str, Report]) -> Table:
    """A row per strategy: how many checks passed, and which did not. Naming those that passed would exceed 80 columns.

    The HTML page has a column for every check.
    """
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("strategy", "verdict"):
        grid.add_column(heading, no_wrap=True)
    grid.add_column("passed", justify="right")
    for heading in ("failed", "unknown", "not claimed"):
        grid.add_column(heading)
    for name, report in reports.items():
        claimed = [check for check in report.checks if check.claimed]
        named = {v: " ".join(c.code for c in claimed if c.verdict == v) for v in ("pass", "fail", "unknown")}
        grid.add_row(
            name,
            Text(report.verdict, COLOURS[report.verdict]),
            str(len(named["pass"].split())),
            Text(named["fail"], COLOURS["fail"]),
            Text(named["unknown"], COLOURS["unknown"]),
            " ".join(check.code for check in report.checks if not check.claimed),
        )
    return grid


def render_all(reports: Mapping[str, Report], format: str) -> str:
    """The table as text or as a page; for the other formats every report in turn (JSON: one object by name)."""
    if format == "json":
        return json.dumps({name: json.loads(report.to_json()) for name, report in reports.items()}, indent=1) + "\n"
    if format == "html":
        loader = PackageLoader("verifier", "report")
        environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        return environment.get_template("index.html.jinja").render(reports=reports, verdict=verdict_of(reports))
    return "\n".join(render(report, format) for report in reports.values())

"""The report as one self-contained page: no script, no request leaves it, plots are inline SVG.

Special here: everything from the strategy (names, tracebacks, output) is escaped by the template engine; the page can
be served next to an API without handing anyone a script.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from verifier.report.model import Report, ScenarioResult

PLOT_WIDTH, ROW = 760, 26


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("verifier", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("report.html.jinja")


def render(report: Report) -> str:
    plots = {s.name: plot for s in report.scenarios if (plot := timeline_plot(s)) is not None}
    curves = {s.name: curve for s in report.scenarios if (curve := loss_curve(s)) is not None}
    return _template().render(report=report, plots=plots, curves=curves)


def timeline_plot(scenario: ScenarioResult) -> dict[str, Any] | None:
    """Bars of the last step's collectives, one row per rank, with their places in pixels."""
    if not scenario.timeline:
        return None
    end = max(max(entry["end_ms"] for entry in scenario.timeline), 1e-3)
    bars = [
        {
            "x": round(60 + entry["start_ms"] / end * (PLOT_WIDTH - 70), 1),
            "y": 6 + entry["rank"] * ROW,
            "width": max(round((entry["end_ms"] - entry["start_ms"]) / end * (PLOT_WIDTH - 70), 1), 1.5),
            "phase": entry["phase"],
            "title": f"rank {entry['rank']}, number {entry['seq']}: {entry['op']}, in {entry['phase']}, "
            f"{entry['start_ms']:.2f} to {entry['end_ms']:.2f} ms",
        }
        for entry in scenario.timeline
    ]
    return {"bars": bars, "height": 30 + scenario.world_size * ROW, "end_ms": end, "row": ROW, "width": PLOT_WIDTH}


def loss_curve(scenario: ScenarioResult) -> dict[str, Any] | None:
    """Rank 0's loss over steps as SVG points; None for fewer than ten steps."""
    losses = scenario.losses
    if len(losses) < 10:
        return None
    low, high = min(losses), max(losses)
    span = (high - low) or 1.0
    points = [
        f"{50 + i / (len(losses) - 1) * (PLOT_WIDTH - 60):.1f},{10 + (high - v) / span * 120:.1f}"
        for i, v in enumerate(losses)
    ]
    return {"points": " ".join(points), "low": low, "high": high, "steps": len(losses), "width": PLOT_WIDTH}

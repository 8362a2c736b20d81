"""Draws a finding's chart with matplotlib: SVG, PNG or PDF, by the file's suffix.

Special here: only this file imports matplotlib, an optional dependency (``lockstep-ddp[bench]``), and not its
``pyplot``, whose figures belong to the process and not to a caller. The same chart gives the same SVG: no date, no
random ids.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from verifier.errors import UsageError
from verifier.lab.finding import Chart, Finding

SUFFIXES = (".svg", ".png", ".pdf")
TONES = {"compute": "#3f6fd8", "hidden": "#4cae7a", "exposed": "#d9622b"}
MISSING = "plots need matplotlib, which is not installed. Try: pip install 'lockstep-ddp[bench]'"


def require(path: Path) -> None:
    """Refuse, before anything is measured, a plot that cannot be written afterwards."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"'{path.name}' is no name for a plot: end it with one of {', '.join(SUFFIXES)}.")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder '{path.parent}' to write '{path.name}' in.")
    if not drawable():
        raise UsageError(MISSING)


def _figure(chart: Chart) -> Any:
    if not drawable():
        raise UsageError(MISSING)
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "lockstep"
    return Figure(figsize=(7.6, 2.2 if chart.kind == "timeline" else 3.8))


def drawable() -> bool:
    """Return whether matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True


def save(finding: Finding, path: Path) -> None:
    """Draw ``finding.chart`` into ``path``. Raises UsageError where ``require`` does, or if there is no chart."""
    require(path)
    path.write_bytes(_drawn(finding, path.suffix[1:]))


def svg(finding: Finding) -> str:
    """The chart as an ``<svg>`` element for a page."""
    text = _drawn(finding, "svg").decode()
    return text[text.index("<svg") :]


def _drawn(finding: Finding, form: str) -> bytes:
    if finding.chart is None:
        raise UsageError(f"'{finding.title}' has nothing to plot.")
    chart = finding.chart
    figure = _figure(chart)
    axis = figure.subplots()
    {"lines": _lines, "bars": _bars, "timeline": _timeline}[chart.kind](axis, chart)
    axis.set_title(finding.title, fontsize=10)
    axis.set_xlabel(chart.x_label)
    axis.set_ylabel(chart.y_label)
    axis.grid(alpha=0.3)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=8)
    figure.tight_layout()
    target = io.BytesIO()
    figure.savefig(target, format=form, **({"metadata": {"Date": None}} if form == "svg" else {}))
    return target.getvalue()


def _lines(axis: Any, chart: Chart) -> None:
    for series in chart.series:
        (line,) = axis.plot(series.x, series.y, marker="o", markersize=3, label=series.label)
        if series.low is not None and series.high is not None:
            axis.fill_between(series.x, series.low, series.high, alpha=0.2, color=line.get_color())
    _scales(axis, chart)
    for x, label in chart.marks:
        axis.axvline(x, ls=":", color="grey", label=label)


def _scales(axis: Any, chart: Chart) -> None:
    if chart.log_x:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    if chart.log_y:
        axis.set_yscale("log")


def _bars(axis: Any, chart: Chart) -> None:
    width = 0.8 / max(len(chart.series), 1)
    for number, series in enumerate(chart.series):
        places = [i + (number - (len(chart.series) - 1) / 2) * width for i in range(len(series.x))]
        errors = None
        if series.low is not None and series.high is not None:
            below = [max(y - low, 0.0) for y, low in zip(series.y, series.low, strict=True)]
            errors = [below, [max(high - y, 0.0) for y, high in zip(series.y, series.high, strict=True)]]
        axis.bar(places, series.y, width, label=series.label, yerr=errors, capsize=2)
    if chart.series:
        axis.set_xticks(range(len(chart.series[0].x)), [str(x) for x in chart.series[0].x], rotation=20, fontsize=8)
    if chart.log_y:
        axis.set_yscale("log")


def _timeline(axis: Any, chart: Chart) -> None:
    lanes = list(dict.fromkeys(span.lane for span in chart.spans))
    named = set()
    for span in chart.spans:
        y, width = -lanes.index(span.lane), span.end_ms - span.start_ms
        label = None if span.tone in named else span.tone
        named.add(span.tone)
        axis.barh(
            y, width, left=span.start_ms, height=0.6, color=TONES[span.tone], edgecolor="white", lw=0.5, label=label
        )
    axis.set_yticks([-i for i in range(len(lanes))], lanes)

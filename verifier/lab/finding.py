"""An answer of the lab: a table, notes, and a chart, as plain data; and its form as text, JSON and Markdown.

Special here: a chart is data, too (``verifier.lab.plots`` draws it), so an answer can be made, kept and tested without
matplotlib.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

Cell = str | float | int | None


@dataclass(frozen=True)
class Series:
    """One curve, or one group of bars. ``low`` and ``high`` are the ends of its spread, if it has one."""

    label: str
    x: tuple[Cell, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Bar:
    """A piece of a timeline, in milliseconds, on the lane ``lane``. ``tone`` is 'compute', 'hidden' or 'exposed'."""

    lane: str
    start_ms: float
    end_ms: float
    tone: str
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """``lines`` and ``bars`` draw ``series``, ``timeline`` draws ``spans``. ``marks`` are labelled vertical lines."""

    kind: Literal["lines", "bars", "timeline"]
    x_label: str
    y_label: str
    series: tuple[Series, ...] = ()
    spans: tuple[Bar, ...] = ()
    marks: tuple[tuple[float, str], ...] = ()
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Finding:
    """An answer. ``facts`` are figures for programs, by name; ``rows`` are for people."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]  # of str, float, int or None
    notes: tuple[str, ...] = ()
    chart: Chart | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1, default=str) + "\n"

    def to_text(self) -> str:
        cells = [list(self.columns), *([shown(cell) for cell in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [self.title, ""]
        for row in cells:
            first, *others = (
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join([first, *others]).rstrip())
        return "\n".join([*lines, *([""] if self.notes else []), *(f"- {note}" for note in self.notes)]) + "\n"

    def to_markdown(self, heading: str = "##") -> str:
        lines = [f"{heading} {self.title}", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("|" + "---|" + "---:|" * (len(self.columns) - 1))
        lines += ["| " + " | ".join(shown(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes), *([""] if self.notes else [])])


def shown(cell: Cell) -> str:
    """A cell as text: thousands separated, one decimal from 10 on, else three digits; empty for None."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.1f}" if abs(cell) >= 10 else f"{cell:.3g}"

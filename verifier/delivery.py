"""A report on its way to whoever asked: to a file, to a terminal, to a pipe; and the exit code that goes with it."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from verifier.engine import write_atomically
from verifier.options import Format
from verifier.report import render
from verifier.report.model import Report
from verifier.report.text import renderable

EXIT_CODES = {"pass": 0, "fail": 1, "unknown": 3}


def deliver(report: Report, format: Format, output: Path | None) -> None:
    """Write ``report`` to ``output``, or to stdout, in colour where somebody looks."""
    if output is not None:
        write_atomically(output, render(report, format))
    elif format == "text" and sys.stdout.isatty():
        Console(highlight=False).print(renderable(report))
    else:
        sys.stdout.write(render(report, format))

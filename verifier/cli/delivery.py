"""Delivers a report to a file, a terminal or a pipe, and gives the exit code for its verdict.

Special here: renderers are imported when there is something to render, so that ``--help`` does not wait for them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from verifier.cli.options import Format

if TYPE_CHECKING:
    from verifier.report.model import Report

EXIT_CODES = {"pass": 0, "fail": 1, "unknown": 3}


def deliver(report: Report, format: Format, output: Path | None) -> None:
    """Write ``report`` to ``output``, or to stdout, in colour if that is a terminal."""
    from verifier.files import write_where_asked
    from verifier.report import render
    from verifier.report.text import renderable

    if output is not None:
        write_where_asked(output, render(report, format))
    elif sys.stdout is None:  # closed by the caller, who reads the exit code
        return
    elif format == "text" and sys.stdout.isatty():
        Console(highlight=False).print(renderable(report))
    else:
        sys.stdout.write(render(report, format))

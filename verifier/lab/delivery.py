"""Delivers the answers of the lab's commands: on stdout in the requested form, and as a plot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from verifier.errors import UsageError
from verifier.lab import plots
from verifier.lab.finding import Finding

Form = Literal["text", "json", "markdown"]
Found = TypeVar("Found")


def check(plot: Path | None) -> None:
    """Refuse a plot that cannot be made, before anything is measured."""
    if plot is not None:
        plots.require(plot)


def deliver(finding: Finding, form: Form, plot: Path | None) -> None:
    """Print ``finding``, and draw it where a plot was asked for."""
    texts = {"text": finding.to_text, "json": finding.to_json, "markdown": finding.to_markdown}
    sys.stdout.write(texts[form]())
    if plot is not None:
        plots.save(finding, plot)


def valued(compute: Callable[[], Found]) -> Found:
    """Return what ``compute`` returns; the pure model's ValueError about an input becomes a UsageError."""
    try:
        return compute()
    except ValueError as error:
        raise UsageError(str(error)) from error

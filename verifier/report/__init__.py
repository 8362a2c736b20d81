"""Verdicts as people and machines read them: one renderer per file, each a pure function of a Report."""

from __future__ import annotations

import importlib

from verifier.errors import UnknownName
from verifier.report.model import Report

FORMATS = ("text", "json", "junit", "markdown", "html")


def render(report: Report, format: str = "text") -> str:
    """``report`` as text in one of FORMATS.

    Raises:
        UnknownName: there is no such format.
    """
    if format not in FORMATS:
        raise UnknownName("format", format, FORMATS)
    if format == "json":
        return report.to_json() + "\n"
    text: str = importlib.import_module(f"verifier.report.{format}").render(report)
    return text

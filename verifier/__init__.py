"""Runs data-parallel training jobs on N ranks, records what they did, and judges it.

    from verifier import verify
    verify("bucketed", world_size=4).verdict        # "pass", "fail" or "unknown"

Special here: nothing in this file imports torch; the public names are imported on first use. ``check`` is the
exception: it shares its name with the module it lives in, and importing that module later would hide it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from verifier.check import check

if TYPE_CHECKING:
    from verifier.engine import verify
    from verifier.recording import Recording
    from verifier.report.model import Report
    from verifier.request import Request
    from verifier.scenario import Scenario
    from verifier.verdict import Verdict

_HOME = {
    "Recording": "verifier.recording",
    "Report": "verifier.report.model",
    "Request": "verifier.request",
    "Scenario": "verifier.scenario",
    "Verdict": "verifier.verdict",
    "verify": "verifier.engine",
}
__all__ = ["Recording", "Report", "Request", "Scenario", "Verdict", "check", "verify"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'verifier' has no attribute '{name}'")

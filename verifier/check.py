"""What a check is: a pure function of one recording, with a stable code, found by its file.

Special here: a check counts its comparisons. One that compared nothing is *unknown*, one that raised is
*unknown*, and only one that compared something everywhere and found nothing wrong *passes*.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from verifier import catalogue
from verifier.recording import Recording
from verifier.verdict import CheckResult, Failure, Verdict

MAX_FAILURES_SHOWN = 8


@dataclass
class Findings:
    """What a check found in one recording. ``blocked`` says why something could not be compared."""

    comparisons: int = 0
    failures: list[Failure] = field(default_factory=list)
    margin: float | None = None
    blocked: str | None = None
    not_claimed: str | None = None

    def note_margin(self, margin: float) -> None:
        self.margin = margin if self.margin is None else max(self.margin, margin)


@dataclass(frozen=True)
class Check:
    """A check: its code (LS201), its name, what it claims, and the function that judges."""

    code: str
    name: str
    judge: Callable[[Recording], Findings]
    claim: str  # the module's docstring: Claim, Catches, Blind to, Seen in the wild, Remedy

    def wants(self, recording: Recording) -> bool:
        codes = recording.scenario.judged_by
        return codes is None or self.code in codes


def check(judge: Callable[[Recording], Findings]) -> Check:
    """Make the function of a file ``lsNNN_name.py`` into the check LSNNN. Code and name come from the file."""
    module = inspect.getmodule(judge)
    stem = judge.__module__.rpartition(".")[2]
    return Check(stem[:5].upper(), stem[6:], judge, inspect.getdoc(module) or "")


def load_checks(codes: Sequence[str] | None = None) -> list[Check]:
    """All checks, or those with the given codes, in order of code."""
    every = [catalogue.CHECKS.load(stem).CHECK for stem in catalogue.CHECKS.names()]
    return [c for c in every if codes is None or c.code in codes]


def run_check(check: Check, recordings: Sequence[Recording]) -> CheckResult:
    """Judge every recording that ``check`` wants, and draw one conclusion."""
    wanted = [recording for recording in recordings if check.wants(recording)]
    comparisons, failures, margin = 0, list[Failure](), None
    blocked, not_claimed = list[str](), list[str]()
    for recording in wanted:
        findings = _judge(check, recording)
        comparisons += findings.comparisons
        failures += findings.failures
        if findings.margin is not None:
            margin = max(findings.margin, margin or 0.0)
        if findings.not_claimed:
            not_claimed.append(findings.not_claimed)
        elif findings.blocked or not recording.complete:
            reason = findings.blocked or "not every rank came to its end"
            blocked.append(f"{recording.scenario.name}: {reason}")
        elif findings.comparisons == 0:
            blocked.append(f"{recording.scenario.name}: nothing was compared")
    claimed = bool(wanted) and len(not_claimed) < len(wanted)
    why = "; ".join(dict.fromkeys(blocked)) or None
    if not claimed:
        why = not_claimed[0] if not_claimed else "no scenario that was run tests this"
    verdict: Verdict = "fail" if failures else "unknown" if blocked or not claimed else "pass"
    return CheckResult(
        code=check.code,
        name=check.name,
        verdict=verdict,
        claimed=claimed or bool(failures),
        comparisons=comparisons,
        failed=len(failures),
        margin=margin,
        why=why if verdict == "unknown" else None,
        failures=failures[:MAX_FAILURES_SHOWN],
    )


def _judge(check: Check, recording: Recording) -> Findings:
    try:
        return check.judge(recording)
    except Exception:
        return Findings(blocked="the check itself failed, which is our fault:\n" + traceback.format_exc())

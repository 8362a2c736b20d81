"""From the findings of checks to their verdicts.

Special here: a check that compared nothing is *unknown*, and so is a check that raised. A check *passes* only if it
compared something in every scenario and found nothing wrong.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence

import numpy as np

from verifier import catalogue
from verifier.check import Check, Findings
from verifier.judge.own_rule import READ_BY
from verifier.nodes import MEANT
from verifier.recording import Recording
from verifier.scenario import Scenario
from verifier.verdict import NOT_TRIED, CheckResult, Failure, Verdict

MAX_FAILURES_SHOWN = 8
SEVERAL = 3  # models with wrong gradients, which some mistake makes wherever it meets them
TOO_EARLY = (
    "it is right where it is imported once there is a process group: ask for ranks and world sizes where they are "
    "used, not in a module's constants or a function's defaults"
)
UNEXPLAINED = {
    "cause": None,
    "confidence": 0.0,
    "explanation": "the gradient is not that of the large batch, and neither is it where nothing is clipped",
    "hint": "see the scenarios without clipping first",
}
UNTOUCHED = (
    "no parameter of the model had a gradient or moved: the strategy trains nothing, or other tensors. If it is the "
    "latter, bring a ddp_core.Driver whose named_parameters() gives them under the model's names"
)


def load_checks(codes: Sequence[str] | None = None) -> list[Check]:
    """All checks, or those with the given codes, in order of code."""
    every = [catalogue.CHECKS.load(stem).CHECK for stem in catalogue.CHECKS.names()]
    return [c for c in every if codes is None or c.code in codes]


def run_check(check: Check, recordings: Sequence[Recording], planned: Sequence[Scenario] = ()) -> CheckResult:
    """Judge every recording that ``check`` wants, and return one result.

    ``planned`` are the scenarios that should have been recorded: if one is missing, the check cannot pass.
    """
    wanted = [recording for recording in recordings if check.wants(recording.scenario)]
    made = {recording.scenario.name for recording in recordings}
    missing = [scenario.name for scenario in planned if check.wants(scenario) and scenario.name not in made]
    comparisons, failures, margin = 0, list[Failure](), None
    blocked, not_claimed, num_aside = [(name, "not run") for name in missing], list[str](), 0
    right = set[str]()
    for recording in wanted:
        findings = _judge(check, recording)
        comparisons += findings.comparisons
        failures += findings.failures
        right |= {recording.scenario.name} if findings.comparisons and not findings.failures else set()
        if findings.margin is not None:
            margin = max(findings.margin, margin or 0.0)
        if findings.not_claimed:
            not_claimed.append(findings.not_claimed)
        elif findings.blocked or not recording.complete:
            reason = findings.blocked or "not every rank came to its end"
            blocked.append((recording.scenario.name, reason))
        elif findings.comparisons == 0:
            blocked.append((recording.scenario.name, "nothing was compared"))
        else:
            num_aside += findings.aside
    says_nothing = len(not_claimed) + (num_aside if not_claimed else 0)
    claimed = says_nothing < len(wanted) + len(missing)
    why = "; ".join(_folded(blocked)) or None
    if not claimed:
        why = not_claimed[0] if not_claimed else NOT_TRIED
    verdict: Verdict = "fail" if failures else "unknown" if blocked or not claimed else "pass"
    return CheckResult(
        code=check.code,
        name=check.name,
        verdict=verdict,
        claimed=claimed or bool(failures),
        comparisons=comparisons,
        failed=len(failures),
        margin=margin if margin is not None and math.isfinite(margin) else None,
        why=why if verdict == "unknown" else None,
        failures=_shown(_not_by_clipping(_with_what_places_say(failures, wanted, right), wanted)),
        failed_in=list(dict.fromkeys(failure.scenario for failure in failures)),
    )


def _shown(failures: list[Failure]) -> list[Failure]:
    """The first few failures, explained ones first: eight without a cause would hide the one that has a cause."""
    return sorted(failures, key=lambda failure: failure.cause is None)[:MAX_FAILURES_SHOWN]


def _not_by_clipping(failures: list[Failure], recordings: Sequence[Recording]) -> list[Failure]:
    """``failures``, without clipping as a cause where the same model's gradients are wrong without clipping as well, or
    those of several models are: the norm of wrong gradients is another one.
    """
    scenarios = {recording.scenario.name: recording.scenario for recording in recordings}
    wrong = {f.scenario for f in failures if f.scenario in scenarios and scenarios[f.scenario].clip_norm is None}
    models = {scenarios[name].workload for name in wrong}
    return [
        failure.model_copy(update=UNEXPLAINED)
        if (failure.cause or "").startswith("clipped")
        and (len(models) >= SEVERAL or scenarios[failure.scenario].workload in models)
        else failure
        for failure in failures
    ]


def _with_what_places_say(failures: list[Failure], recordings: Sequence[Recording], right: set[str]) -> list[Failure]:
    """``failures``, with another hint if all of them are from ranks on several nodes, or all from an early import, and
    one of the other scenarios, if there are any, is ``right``.
    """
    on_nodes = {recording.scenario.name for recording in recordings if recording.scenario.several_nodes}
    early = {recording.scenario.name for recording in recordings if recording.scenario.imported_first}
    for of, remedy in ((on_nodes, MEANT), (early, TOO_EARLY)):
        others = {recording.scenario.name for recording in recordings} - of
        if all(failure.scenario in of for failure in failures) and (right - of or not others):
            return [failure.model_copy(update={"hint": remedy}) for failure in failures]
    return failures


def _folded(told: list[tuple[str, str]]) -> list[str]:
    """Each reason once, with the names of its scenarios."""
    names: dict[str, list[str]] = {}
    for name, reason in told:
        names.setdefault(reason, []).append(name)
    return [f"{', '.join(dict.fromkeys(of))}: {reason}" for reason, of in names.items()]


def _judge(check: Check, recording: Recording) -> Findings:
    if recording.refused is not None:
        return Findings(not_claimed=f"refused, and not claimed: {recording.refused}")
    if recording.not_claimed is not None and recording.complete:
        return Findings(not_claimed=recording.not_claimed)
    if not check.always and all(rank.notes.get("untouched") for rank in recording.ranks):
        return Findings(blocked=UNTOUCHED)
    if check.code in READ_BY and recording.derived.not_made is not None:
        return Findings(blocked=recording.derived.not_made)
    try:
        with np.errstate(all="ignore"):  # NaN and infinity are evidence; numpy's warnings would reach the user
            return check.judge(recording)
    except Exception:
        return Findings(blocked="the check itself failed, which is our fault:\n" + traceback.format_exc())

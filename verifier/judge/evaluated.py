"""Compares every rank's evaluation outputs with the single process's outputs for the same rows. Pure.

Special here: this only shows whether evaluations use the weights that are trained. If gradients or weights were wrong
before, or rightly differ from the single process's, nothing is concluded. LS504 compares the weights itself, and uses
only the outputs from here.
"""

from __future__ import annotations

from verifier.check import Findings
from verifier.judge.arithmetic import contract_of, own_steps
from verifier.judge.comparison import Difference, bound_float64, compare
from verifier.judge.equivalence import blocked_reference
from verifier.judge.out_of_sight import compare_gradients
from verifier.judge.updates import compare_weights
from verifier.recording import RankRecording, Recording
from verifier.verdict import Failure

EXPLAINS = "LS204"  # failures of this check: `causes` reads it here


def compare_evaluation(recording: Recording, step: int) -> Findings:
    """Compare the evaluation after ``step`` on each rank, if everything up to there was right."""
    findings = compare_outputs(recording, step)
    if findings.not_claimed or not findings.comparisons:
        return findings
    if any(f.step is not None and f.step <= step for f in compare_gradients(recording).failures):
        return Findings(blocked="the gradients before it are wrong: see LS201")
    weights = compare_weights(recording, range(step + 1))
    if weights.failures or weights.blocked:
        return Findings(blocked=weights.blocked or "the weights before it are wrong: see LS202")
    return findings


def compare_outputs(recording: Recording, step: int) -> Findings:
    """The same, whatever was wrong before. A strategy may fetch weights that have not arrived for the evaluation."""
    if reason := blocked_reference(recording):
        return Findings(blocked=reason)
    if reason := own_steps(recording):
        return Findings(not_claimed=reason)
    if contract_of(recording).get("lossy"):
        return Findings(not_claimed="the strategy declares what it loses on the wire: its weights are near, not equal")
    findings = Findings()
    for rank in recording.ranks:
        _compare(recording, rank, step, findings)
    return findings


def _compare(recording: Recording, rank: RankRecording, step: int, findings: Findings) -> None:
    assert recording.reference is not None
    expected = recording.reference.tensor(f"evaluation_{rank.rank}", step, "output")
    observed = rank.tensor("evaluation", step, "output")
    if expected is None or observed is None or expected.values is None or observed.values is None:
        findings.blocked = f"rank {rank.rank}'s evaluation returned no tensor that could be recorded"
        return
    findings.comparisons += 1
    difference = compare(observed.values, expected.values, bound_float64(expected.values))
    findings.note_margin(difference.margin)
    if not difference.equal:
        findings.failures.append(_failure(recording, rank.rank, step, difference))


def _failure(recording: Recording, rank: int, step: int, difference: Difference) -> Failure:
    when = f"after step {step}" if step >= 0 else "before the first step"
    known = "though the weights that are trained are the same" if step >= 0 else "and no step was taken yet"
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        index=list(difference.index),
        expected=repr(difference.expected),
        observed=repr(difference.observed),
        cause="evaluation_differs",
        confidence=0.9,
        explanation=f"in an evaluation {when} the wrapped model returns {difference.observed:g} on rank "
        f"{rank}, the single process {difference.expected:g}, {known}",
        hint="evaluate through the module that is trained, or bring the copy up to date after each step",
    )

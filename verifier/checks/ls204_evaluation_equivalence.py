"""Evaluation equivalence: a forward in evaluation mode returns what the single process returns for the same rows.

Claim: between two steps a loop may validate, and what it measures is the model that is trained: each rank's output is
that of the single process with the weights of that moment.

Catches: a copy that is evaluated and was not brought up to date; weights that are gathered for training alone; a path
for evaluation that leaves something out.

Blind to: what changes with the mode (dropout, statistics), which the model here does not have; strategies whose weights
are rightly not the single process's (``lossy``, ``average="sum"``, an update rule of their own).

Seen in the wild: a class of mistake.

Remedy: evaluate through the module that is trained, or bring the copy up to date after each step.
"""

from __future__ import annotations

from verifier.check import Findings, check
from verifier.judge.arithmetic import contract_of, own_steps
from verifier.judge.comparison import Difference, bound_float64, compare
from verifier.judge.equivalence import blocked_reference
from verifier.judge.out_of_sight import compare_gradients
from verifier.judge.updates import compare_weights
from verifier.recording import RankRecording, Recording
from verifier.verdict import Failure


@check(when=lambda scenario: scenario.evaluate_after is not None)
def evaluation_equivalence(recording: Recording) -> Findings:
    step = recording.scenario.evaluate_after
    assert step is not None
    if reason := blocked_reference(recording):
        return Findings(blocked=reason)
    if reason := own_steps(recording):
        return Findings(not_claimed=reason)
    if contract_of(recording).get("lossy"):
        return Findings(not_claimed="the strategy declares what it loses on the wire: its weights are near, not equal")
    if any(f.step is not None and f.step <= step for f in compare_gradients(recording).failures):
        return Findings(blocked="the gradients before it are wrong: see LS201")
    weights = compare_weights(recording, range(step + 1))
    if weights.failures or weights.blocked:
        return Findings(blocked=weights.blocked or "the weights before it are wrong: see LS202")
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
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        index=list(difference.index),
        expected=repr(difference.expected),
        observed=repr(difference.observed),
        cause="evaluation_differs",
        confidence=0.9,
        explanation=f"in an evaluation after step {step} the wrapped model returns {difference.observed:g} on rank "
        f"{rank}, the single process {difference.expected:g}, though the weights that are trained are the same",
        hint="evaluate through the module that is trained, or bring the copy up to date after each step",
    )


CHECK = evaluation_equivalence

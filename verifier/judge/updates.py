"""Compares weights with the single process's, step by step; ``wrong_updates`` explains differences. Pure functions.

Special here: weights are compared only where the gradients behind them were right, so that a difference comes from the
update.
"""

from __future__ import annotations

import numpy as np

from verifier.check import Findings
from verifier.judge.alone import compare_with_alone, standard
from verifier.judge.arithmetic import (
    contract_of,
    is_lossy,
    is_narrow,
    is_single,
    keeps_float64,
    own_steps,
    sums_in_float16,
)
from verifier.judge.comparison import Difference, compare
from verifier.judge.equivalence import blocked_reference
from verifier.judge.narrowing import held_in
from verifier.judge.weight_bounds import narrow_noise, weight_bound
from verifier.judge.wrong_updates import explain_weight
from verifier.recording import RankRecording, Recording, Tensor
from verifier.refusal import last_words
from verifier.verdict import Failure

EXPLAINS = "LS202"  # failures of this check: `causes` reads it here


def compare_weights(recording: Recording, steps: range) -> Findings:
    """Compare every rank's weights after each of ``steps`` with the single process's; stop after the first wrong step.

    If the update rule is the strategy's own, or gradients are summed, the standard is a run on one rank (``alone``).
    Raises nothing; ``blocked`` where weights were not recorded. The bound depends on the optimizer (``weight_bounds``).
    """
    findings = Findings(blocked=blocked_reference(recording))
    if findings.blocked:
        return findings
    if standard(recording) is not None:
        return compare_with_alone(recording, steps)
    return compare_with_reference(recording, steps)


def compare_with_reference(recording: Recording, steps: range) -> Findings:
    """The same with torch's SGD or AdamW in a single process as the standard, even if there is a run on one rank."""
    findings = Findings()
    assert recording.reference is not None
    for step in steps:
        for name in recording.parameter_names:
            _compare_weight(recording, step, name, findings)
        if findings.failures:
            break
    return findings


def _compare_weight(recording: Recording, step: int, name: str, findings: Findings) -> None:
    """Compare one weight on every rank. Equal contents are compared once, and counted for each rank."""
    assert recording.reference is not None
    expected, differences = recording.reference.tensor("weight", step, name), dict[object, Difference]()
    for rank in recording.ranks:
        observed = rank.tensor("weight", step, name)
        if expected is None or observed is None or expected.values is None or observed.values is None:
            findings.blocked = f"the weights after step {step} were not recorded on rank {rank.rank}"
            continue
        findings.comparisons += 1
        if observed.bits not in differences:
            differences[observed.bits] = _difference(recording, step, name, expected, observed.values)
        difference = differences[observed.bits]
        findings.note_margin(difference.margin)
        if not difference.equal or _is_held_narrower(recording, step, expected, observed):
            findings.failures.append(_weight_failure(recording, rank, step, name, difference))


def _difference(recording: Recording, step: int, name: str, expected: Tensor, observed: np.ndarray) -> Difference:
    """The difference of two weights. Weights equal to the single process's, as most are, need no bound."""
    due = _expected_weight(recording, step, name, expected)
    if np.array_equal(observed, due):
        return Difference(0.0, (), 0.0, 0.0)
    return compare(observed, due, weight_bound(recording, step, name, expected))


def _is_held_narrower(recording: Recording, step: int, expected: Tensor, observed: Tensor) -> bool:
    """Return whether a float64 weight was rounded, in a model whose narrower weights' noise hides that."""
    if not (is_narrow(recording) or is_single(recording)) or not keeps_float64(recording, expected.dtype):
        return False
    return held_in(observed.values, expected.values, step, narrow_noise(recording, step, expected)) is not None


def compare_final(recording: Recording, step: int) -> Findings:
    """Compare every rank's weights after ``join()`` with the single process's."""
    findings = Findings()
    assert recording.reference is not None
    for name, expected in recording.reference.named("final", step).items():
        for rank in recording.ranks:
            observed = rank.tensor("final", step, name)
            if observed is None or observed.values is None or expected.values is None:
                findings.blocked = f"rank {rank.rank} did not come out of join()"
                continue
            findings.comparisons += 1
            difference = compare(observed.values, expected.values, weight_bound(recording, step, name, expected))
            findings.note_margin(difference.margin)
            if not difference.equal:
                findings.failures.append(
                    Failure(
                        scenario=recording.scenario.name,
                        step=step,
                        rank=rank.rank,
                        parameter=name,
                        index=list(difference.index),
                        expected=repr(difference.expected),
                        observed=repr(difference.observed),
                        cause="uneven_step_differs",
                        confidence=0.9,
                        explanation=f"after join() rank {rank.rank}'s {name} is not what a single process has that "
                        "took the same steps",
                        hint="count ranks without data as gradients of zero, and hand out the weights at the end",
                    )
                )
    return findings


def not_judged(recording: Recording) -> str | None:
    """Return why this recording's updates cannot be judged; None if they can."""
    contract, scenario = contract_of(recording), recording.scenario
    if recording.own_rule:
        return _not_known_alone(recording)
    if scenario.unscaled and sums_in_float16(contract):
        return "the strategy declares a sum that is rounded to float16, which does not hold it here"
    if contract.get("lossy") and scenario.optimizer == "adamw":
        return "the strategy declares what it loses on the wire, and AdamW makes any loss of a tiny gradient large"
    plain = scenario.optimizer == "sgd" and not scenario.weight_decay and scenario.clip_norm is None
    if contract.get("average") == "sum" and not plain and standard(recording) is None:
        return own_steps(recording)
    return None


def _not_known_alone(recording: Recording) -> str | None:
    """Return why there is no run on one rank to compare with under the strategy's own rule; None if there is."""
    if recording.scenario.world_size == 1:
        return f"{own_steps(recording)}, and one rank is all there is"
    if is_lossy(recording) or recording.alone is None:
        return own_steps(recording)
    if standard(recording) is None:
        detail = (recording.alone.ranks[0].outcome or {}).get("detail") or "it did not come to its end"
        return f"{own_steps(recording)}, and it could not be run on one rank to compare with: {last_words(detail)}"
    return None


def _expected_weight(recording: Recording, step: int, name: str, expected: Tensor) -> np.ndarray:
    """The single process's weight; if the strategy declares a sum, after a first step W times as long."""
    assert expected.values is not None
    start = recording.ranks[0].tensor("weight", -1, name)
    if contract_of(recording).get("average") != "sum" or start is None or start.values is None:
        return expected.values
    longer: np.ndarray = start.values + recording.scenario.world_size * (expected.values - start.values)
    return longer


def _weight_failure(recording: Recording, rank: RankRecording, step: int, name: str, difference: Difference) -> Failure:
    assert recording.reference is not None
    cause, explanation, hint, confidence = explain_weight(recording, rank, step, name)
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank.rank,
        parameter=name,
        index=list(difference.index),
        expected=repr(difference.expected),
        observed=repr(difference.observed),
        cause=cause,
        confidence=confidence,
        explanation=explanation,
        hint=hint,
    )

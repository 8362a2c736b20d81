"""Weights against the single process, step by step, and why they may differ. Pure functions on recordings.

Special here: weights are compared only where the gradients behind them were right, so that a difference is the
update's.
"""

from __future__ import annotations

import numpy as np

from verifier.check import Findings
from verifier.judge.alone import compare_with_alone, standard
from verifier.judge.arithmetic import contract_of, is_lossy, own_steps
from verifier.judge.comparison import Difference, compare
from verifier.judge.equivalence import blocked_reference
from verifier.judge.misplaced import same_in_another_order
from verifier.judge.movement import common_factor, is_about, told_by_the_world_size
from verifier.judge.narrowing import held_in
from verifier.judge.weight_bounds import weight_bound
from verifier.recording import RankRecording, Recording, Tensor
from verifier.refusal import last_words
from verifier.scenario import SGD_LR, SGD_MOMENTUM, Scenario
from verifier.scheduling import FACTOR
from verifier.verdict import Failure


def compare_weights(recording: Recording, steps: range) -> Findings:
    """Every rank's weights after each of ``steps`` against the single process's, the first wrong step ending it; where
    the update rule is the strategy's own, or gradients are summed, against what it comes to on one rank (``alone``).

    Raises nothing; ``blocked`` where weights were not recorded. The bound follows the optimizer (``weight_bounds``).
    """
    findings = Findings(blocked=blocked_reference(recording))
    if findings.blocked:
        return findings
    if standard(recording) is not None:
        return compare_with_alone(recording, steps)
    return compare_with_reference(recording, steps)


def compare_with_reference(recording: Recording, steps: range) -> Findings:
    """The same against torch's SGD or AdamW in a single process, whatever one rank came to."""
    findings = Findings()
    assert recording.reference is not None
    for step in steps:
        for name in recording.parameter_names:
            _compare_weight(recording, step, name, findings)
        if findings.failures:
            break
    return findings


def _compare_weight(recording: Recording, step: int, name: str, findings: Findings) -> None:
    """One weight on every rank. What replicas in lockstep hold is compared once, and counted for each."""
    assert recording.reference is not None
    expected, differences = recording.reference.tensor("weight", step, name), dict[object, Difference]()
    for rank in recording.ranks:
        observed = rank.tensor("weight", step, name)
        if expected is None or observed is None or expected.values is None or observed.values is None:
            findings.blocked = f"the weights after step {step} were not recorded on rank {rank.rank}"
            continue
        findings.comparisons += 1
        if observed.bits not in differences:
            due = _expected_weight(recording, step, name, expected)
            differences[observed.bits] = compare(observed.values, due, weight_bound(recording, step, name, expected))
        difference = differences[observed.bits]
        findings.note_margin(difference.margin)
        if not difference.equal:
            findings.failures.append(_weight_failure(recording, rank, step, name, difference))


def compare_final(recording: Recording, step: int) -> Findings:
    """Every rank's weights after ``join()`` against the single process's."""
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
    """Why nothing can be said of this recording's updates; None: something can."""
    contract, scenario = contract_of(recording), recording.scenario
    if recording.ranks[0].notes.get("own_optimizer"):
        return _not_known_alone(recording)
    if contract.get("lossy") and scenario.optimizer == "adamw":
        return "the strategy declares what it loses on the wire, and AdamW makes any loss of a tiny gradient large"
    plain = scenario.optimizer == "sgd" and not scenario.weight_decay and scenario.clip_norm is None
    if contract.get("average") == "sum" and not plain and standard(recording) is None:
        return own_steps(recording)
    return None


def _not_known_alone(recording: Recording) -> str | None:
    """Why it is not known what one process has by the strategy's own rule; None: it is."""
    if recording.scenario.world_size == 1:
        return f"{own_steps(recording)}, and one rank is all there is"
    if is_lossy(recording) or recording.alone is None:
        return own_steps(recording)
    if standard(recording) is None:
        detail = (recording.alone.ranks[0].outcome or {}).get("detail") or "it did not come to its end"
        return f"{own_steps(recording)}, and it could not be run on one rank to compare with: {last_words(detail)}"
    return None


def _expected_weight(recording: Recording, step: int, name: str, expected: Tensor) -> np.ndarray:
    """The single process's weight; of a strategy that declares a sum, a first step W times as long."""
    assert expected.values is not None
    start = recording.ranks[0].tensor("weight", -1, name)
    if contract_of(recording).get("average") != "sum" or start is None or start.values is None:
        return expected.values
    longer: np.ndarray = start.values + recording.scenario.world_size * (expected.values - start.values)
    return longer


def _weight_failure(recording: Recording, rank: RankRecording, step: int, name: str, difference: Difference) -> Failure:
    assert recording.reference is not None
    cause, explanation, hint, confidence = _explain_weight(recording, rank, step, name)
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


def _explain_weight(recording: Recording, rank: RankRecording, step: int, name: str) -> tuple[str, str, str, float]:
    assert recording.reference is not None
    before, after = rank.tensor("weight", step - 1, name), rank.tensor("weight", step, name)
    wanted = recording.reference.tensor("weight", step, name)
    gradient = recording.reference.tensor("gradient", step, name)
    if gradient is None:
        return (
            "unused_parameter_moved",
            f"no rank used {name} in step {step}, and its weights are not those of the single process, whose gradient "
            "is None there: a gradient of zeros lets weight decay and momentum move it",
            "leave the gradient of a parameter that no rank used at None",
            0.9,
        )
    rests = before is not None and after is not None and before.digest == after.digest
    if (
        rests
        and rank.tensor("gradient", step, name) is None
        and gradient.values is not None
        and not gradient.values.any()
    ):
        return (
            "zero_taken_for_none",
            f"the gradient of {name} is zero in step {step}, in every element, and not None; rank {rank.rank} has "
            "None, and there neither weight decay nor momentum moves the weights",
            "tell by whether a rank had a gradient at all that nobody used a parameter, and not by its sum",
            0.9,
        )
    if rests:
        return (
            "not_stepped",
            f"the weights of {name} did not move in step {step}",
            "hand the optimizer the parameters that are trained, and step on every rank",
            0.9,
        )
    if before is not None and after is not None and wanted is not None:
        pattern = _pattern(recording, step, name, before.values, after.values, wanted.values)
        if pattern is not None:
            return pattern
    if (observed := rank.tensor("gradient", step, name)) is None or observed.values is None:
        return (
            "update_differs",
            f"the weights of {name} are wrong after step {step}; their gradient was not whole on this rank to compare",
            "look at what each rank gives and gets of this gradient, also where some rank did not use the parameter",
            0.5,
        )
    return (
        "update_differs",
        f"the gradient of {name} was right in step {step}, and the weights after the optimizer's step are not",
        "look at what happens between the gradient and the step: clipping, scaling, skipped steps, optimizer state",
        0.5,
    )


def _pattern(
    recording: Recording,
    step: int,
    name: str,
    before: np.ndarray | None,
    after: np.ndarray | None,
    wanted: np.ndarray | None,
) -> tuple[str, str, str, float] | None:
    """What the weights before and after a step, and those that there should be, have to do with one another."""
    if (unheard := _unheard(recording, step, name, after, wanted)) is not None:
        return unheard
    factor = common_factor(before, after, wanted)
    if factor is not None:
        return _explain_factor(recording.scenario, step, name, factor)
    if (rested := _rested(before, after, wanted)) is not None:
        return (
            "not_stepped",
            f"elements {rested} of {name}, laid flat, did not move in step {step}, and all others did as they should",
            "where a rank did not use the parameter, its part needs the mean gradient all the same"
            if _unused_by_some(recording, name)
            else "pad what is divided among ranks, so that the last elements have an owner, too",
            0.9,
        )
    if (dtype := held_in(after, wanted, step)) is not None:
        return (
            "held_narrower",
            f"after step {step} {name} holds numbers of {dtype}, as near to the right ones as that dtype allows",
            "keep copies of weights in the dtype of the parameter, or say that this is not claimed: "
            'Contract(disclaims={"float64"})',
            0.9,
        )
    if same_in_another_order(after, wanted):
        return (
            "misplaced_elements",
            f"after step {step} every number of {name} is there, and not at its index: these are the right weights "
            "in another order",
            "copy weights by index: a view of a transposed tensor has its elements elsewhere in memory",
            0.9,
        )
    return None


def _unheard(
    recording: Recording, step: int, name: str, after: np.ndarray | None, wanted: np.ndarray | None
) -> tuple[str, str, str, float] | None:
    """Is this the first step after other options than the rate were changed, as schedulers change them?"""
    if recording.scenario.new_options_after == step - 1:
        return (
            "schedule_ignored",
            f"after step {step - 1}, up to which all weights were right, betas changed, the decay of one group and the "
            f"learning rate of the other, and in step {step} {name} does not move by the new ones",
            "read all options from the optimizer's param_groups in each step, each group its own: schedulers change "
            "them there",
            0.8,
        )
    if _with_old_momentum(recording, step, name, after, wanted):
        return (
            "schedule_ignored",
            f"momentum changed after step {step - 1}, and in step {step} {name} moved as with the old one",
            "read momentum, too, from the optimizer's param_groups in each step: schedulers change it there",
            0.95,
        )
    return None


def _with_old_momentum(
    recording: Recording, step: int, name: str, after: np.ndarray | None, wanted: np.ndarray | None
) -> bool:
    """Is ``after`` what SGD comes to if its momentum, changed after the first step, is the old one in the second?"""
    assert recording.reference is not None
    first = recording.reference.tensor("gradient", 0, name)  # and SGD's momentum after that step
    if (recording.scenario.new_momentum_after, step) != (0, 1) or first is None or first.values is None:
        return False
    if after is None or wanted is None or after.shape != wanted.shape or not first.values.any():
        return False
    due = wanted - SGD_LR * SGD_MOMENTUM * (1 - FACTOR) * first.values
    return bool(np.allclose(after, due, rtol=1e-9, atol=0))


def _rested(before: np.ndarray | None, after: np.ndarray | None, wanted: np.ndarray | None) -> str | None:
    """Which elements are wrong, as "first-last", if those that are wrong are one run of such as never moved."""
    if before is None or after is None or wanted is None or not before.shape == after.shape == wanted.shape:
        return None
    if not np.isfinite(after).all():  # which compares as neither right nor wrong
        return None
    start, end, due = (values.reshape(-1) for values in (before, after, wanted))
    largest = np.abs(due - start).max(initial=0.0)
    wrong = np.flatnonzero(np.abs(end - due) > 1e-3 * largest)
    if not wrong.size or wrong.size == due.size or wrong[-1] - wrong[0] >= wrong.size:
        return None
    return f"{wrong[0]}-{wrong[-1]}" if (end[wrong] == start[wrong]).all() else None


def _unused_by_some(recording: Recording, name: str) -> bool:
    """Had a rank no gradient of its own in the first step?"""
    alone, numbers = recording.reference, [rank.rank for rank in recording.ranks]
    return alone is not None and any(alone.tensor(f"local_gradient_{number}", 0, name) is None for number in numbers)


def _explain_factor(scenario: Scenario, step: int, name: str, factor: float) -> tuple[str, str, str, float]:
    if step == 0 and scenario.optimizer == "sgd" and is_about(factor, 2 + SGD_MOMENTUM):
        return (
            "stepped_twice",
            f"the weights of {name} moved {factor:.3g} times as far as they should in step {step}, as two steps with a "
            f"momentum of {SGD_MOMENTUM:g} move them",
            "step once: in the loop or in the strategy, not in both",
            0.9,
        )
    if step - 1 in scenario.new_lr_after and is_about(factor, 1 / FACTOR):
        return (
            "schedule_ignored",
            f"the learning rate changed after step {step - 1}, and in step {step} {name} moved as far as "
            "with the old one",
            "read lr from the optimizer's param_groups in each step, where schedulers change it",
            0.95,
        )
    of_size = told_by_the_world_size(factor, scenario.world_size)
    return (
        "update_scaled",
        f"the gradient of {name} was right in step {step}, and its weights moved {factor:.3g} times as far as they "
        f"should{of_size}",
        "hand the optimizer the learning rate that the loop asks for; scale or clip no gradient inside step()",
        0.9 if of_size else 0.6,
    )

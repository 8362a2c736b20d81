"""The strategy on one rank, with all ranks' samples: the standard for weights under an update rule of its own.

It is also the standard where gradients are declared to be summed over W ranks. The loss is then multiplied by W, and if
the optimizer is the one asked for, plain torch beside that rank is the standard.

Special here: the bound. Gradients are compared strictly elsewhere. How an unknown rule amplifies rounding is not known
(Muon scales directions without a gradient to full size, a sign flips), so the norm of a whole tensor's movement is
compared. Correct rules agree to a thousandth and better. A parameter that no rank steps, a wrong factor, or a matrix
updated in slices is off by its own size. A rule whose first step is within a hundredth of the one asked for amplifies
rounding no more than that one, and has a stricter bound.

If the bound is exceeded, the rule's sensitivity to rounding is measured: one rank trains twice more, once with a small
amount added to all gradients and once with it subtracted. An element that is only rounding, or a momentum that cancels
before its sign is taken, goes opposite ways in the two runs. Weights between the two are not a mistake. Where a whole
tensor's gradient is only rounding, ``only_rounding`` says so, and nothing is compared after that step.
"""

from __future__ import annotations

import numpy as np

from verifier.check import Findings
from verifier.judge.at_rest import judge_rested
from verifier.judge.comparison import compare
from verifier.judge.distance import LEFT_BEHIND, off_by, some_rest
from verifier.judge.movement import common_factor, told, told_by_the_world_size
from verifier.judge.only_rounding import decided_by_rounding
from verifier.judge.wrong_updates import moved_unused
from verifier.recording import RankRecording, Recording
from verifier.scenario import Scenario
from verifier.verdict import Failure

EXPLAINS = "LS202"  # failures of this check: `causes` reads it here
FOLDER = "alone"  # below the scenario's own
NUDGES = {"nudged_more": 1.0, "nudged_less": -1.0}  # times one of these, far above rounding, far below a mistake:
NUDGE, NUDGE_SINGLE = 2.0**-40, 2.0**-14  # where the model is in float64, and where it is not
BOUND = 0.01  # of the norm of a tensor's whole movement so far, under the strategy's own rule
BOUND_AS_ASKED = 1e-4  # under torch's SGD or AdamW, in exact arithmetic or float64, or under a rule close to those
NOT_FINITE = "weights have become NaN or infinite, on one rank as well, and tell nothing"
NARROW = ("float16", "bfloat16")  # dtypes in which small numbers that a rule adds, such as an eps, round to 0


def scenario_alone(scenario: Scenario, *, summed: bool) -> Scenario:
    """The scenario of one undisturbed rank that takes all ranks' samples; its gradient is their sum, or mean.

    It is resumed where ``scenario`` is: state that the strategy's own rule does not save is lost on one rank as well,
    and is not a fault of replication.
    """
    changed = {"world_size": 1, "alone_for": scenario.world_size, "delay_ms": 0.0, "own_interpreters": False}
    times = scenario.world_size if summed else 1
    return scenario.model_copy(update={**changed, "loss_times": times})


def scenarios_nudged(scenario: Scenario) -> dict[str, Scenario]:
    """``scenario_alone`` with nudged gradients, by the folder below the scenario's own."""
    alone, size = scenario_alone(scenario, summed=False), NUDGE if "float64" in scenario.needs else NUDGE_SINGLE
    return {folder: alone.model_copy(update={"nudge": sign * size}) for folder, sign in NUDGES.items()}


def standard(recording: Recording) -> RankRecording | None:
    """The recording that weights are compared with: the one rank's, or plain torch's if the optimizer is as asked for.

    None if there is none, or if it did not complete.
    """
    if recording.alone is None:
        return None
    found = recording.alone.ranks[0] if recording.own_rule else recording.alone.reference
    return found if found is not None and found.completed else None


def compare_with_alone(recording: Recording, steps: range) -> Findings:
    """Compare every rank's weights after each of ``steps`` with those of the one rank; stop after the first wrong step.

    ``blocked`` is set where weights were not recorded.
    """
    alone, findings = standard(recording), Findings()
    assert alone is not None
    bound = _bound(recording, alone)
    for step in steps:
        by_rounding = [
            _compare(recording, alone, rank, step, name, bound, findings)
            for name in recording.parameter_names
            for rank in recording.ranks
        ]
        if findings.failures or any(by_rounding):
            break
    if findings.blocked:
        findings.not_claimed = None
    if recording.own_rule and not findings.failures and len(steps) > 1:
        judge_rested(recording, alone, steps, findings)
    return findings


def _compare(
    recording: Recording,
    alone: RankRecording,
    rank: RankRecording,
    step: int,
    name: str,
    bound: float,
    findings: Findings,
) -> bool:
    """Add what is wrong with the weights of ``name`` after ``step``; return whether nothing but roundings decides."""
    start = recording.ranks[0].tensor("weight", -1, name)
    held = [rank.tensor("weight", step, name), alone.tensor("weight", step, name), start]
    found = [tensor.values for tensor in held if tensor is not None and tensor.values is not None]
    if len(found) < len(held):
        findings.blocked = f"the weights after step {step} were not recorded on rank {rank.rank}, or not alone"
        return False
    observed, wanted, begun = found
    narrow = any(tensor is not None and tensor.dtype in NARROW for tensor in held)  # small steps may round to nothing
    if not np.isfinite(wanted).all() and not np.isfinite(observed).all():
        if narrow:
            findings.not_claimed = f"in half precision {NOT_FINITE}"
        else:
            findings.blocked = NOT_FINITE
        return False
    findings.comparisons += 1
    margin = _margin(observed, wanted, begun, bound, narrow=narrow)
    if margin > 1:
        nearest = _nearest(recording, step, name, observed, wanted)
        margin = min(margin, _margin(observed, nearest, begun, bound, narrow=narrow))
    if margin > 1 and decided_by_rounding(recording, step, name, observed, wanted):
        return True
    findings.note_margin(margin)
    if margin > 1:
        findings.failures.append(_failure(recording, alone, rank, step, name, observed, wanted))
    return False


def _margin(observed: np.ndarray, wanted: np.ndarray, begun: np.ndarray, bound: float, *, narrow: bool) -> float:
    """The error of the movement as a multiple of ``bound``; more than 1 also if single elements were left behind."""
    margin = off_by(observed, wanted, begun) / bound
    return max(margin, LEFT_BEHIND) if not narrow and some_rest(observed, wanted, begun) else margin


def _nearest(recording: Recording, step: int, name: str, observed: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The values nearest to ``observed`` in the range spanned by one rank's weights, nudged and not nudged."""
    ranks = [nudged.ranks[0] for nudged in recording.nudged if nudged.ranks[0].completed]
    found = [tensor.values for rank in ranks if (tensor := rank.tensor("weight", step, name)) is not None]
    values = [held for held in found if held is not None and held.shape == wanted.shape == observed.shape]
    if len(values) < len(NUDGES) or wanted.dtype.kind == "c":
        return wanted
    low, high = (extreme.reduce([wanted, *values]) for extreme in (np.minimum, np.maximum))
    return np.clip(observed, low, high)


def _bound(recording: Recording, alone: RankRecording) -> float:
    """The bound, relative to a movement's norm. It is strict if the first step alone is near the single process's."""
    if not recording.own_rule:
        return BOUND_AS_ASKED
    assert recording.reference is not None
    for name in recording.parameter_names:
        held = [recording.ranks[0].tensor("weight", -1, name), alone.tensor("weight", 0, name)]
        held.append(recording.reference.tensor("weight", 0, name))
        found = [tensor.values for tensor in held if tensor is not None and tensor.values is not None]
        if len(found) < 3 or found[0].shape != found[2].shape or off_by(found[1], found[2], found[0]) > BOUND:
            return BOUND
    return BOUND_AS_ASKED


def _failure(
    recording: Recording,
    alone: RankRecording,
    rank: RankRecording,
    step: int,
    name: str,
    observed: np.ndarray,
    wanted: np.ndarray,
) -> Failure:
    worst = compare(observed, wanted, 0.0 if observed.shape != wanted.shape else 1e-300)
    cause, explanation, hint, confidence = _explain(recording, alone, rank, step, name)
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank.rank,
        parameter=name,
        index=list(worst.index),
        expected=repr(worst.expected),
        observed=repr(worst.observed),
        cause=cause,
        confidence=confidence,
        explanation=explanation,
        hint=hint,
    )


def _explain(
    recording: Recording, alone: RankRecording, rank: RankRecording, step: int, name: str
) -> tuple[str, str, str, float]:
    before, after = rank.tensor("weight", step - 1, name), rank.tensor("weight", step, name)
    wanted = alone.tensor("weight", step, name)
    assert after is not None
    assert wanted is not None
    if recording.reference is not None and recording.reference.tensor("gradient", step, name) is None:
        return moved_unused(step, name)
    if before is not None and before.digest == after.digest:
        return (
            "not_stepped",
            f"the weights of {name} did not move in step {step}, and {_those(recording)} do",
            "give every parameter an owner that steps it, and send its new weights to the other ranks",
            0.9,
        )
    factor = common_factor(before.values, after.values, wanted.values) if before is not None else None
    if factor is not None:
        of_size = told_by_the_world_size(factor, recording.scenario.world_size)
        return (
            "update_scaled",
            f"the weights of {name} moved {told(factor)} times as far in step {step} as {_those(recording)}{of_size}",
            "step with the mean over ranks, or the sum that is declared; scale nothing else by the world size",
            0.9 if of_size else 0.6,
        )
    return (
        "update_differs",
        f"the weights of {name} after step {step} are not {_those(recording)}",
        "compute each update from the whole averaged gradient and the state that belongs to it",
        0.5,
    )


def _those(recording: Recording) -> str:
    if recording.own_rule:
        return "those that the same strategy comes to on one rank, with everybody's samples"
    return f"those of a single process whose loss is multiplied by {recording.scenario.world_size}, as sums are"

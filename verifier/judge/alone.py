"""The strategy by itself on one rank, with everybody's samples: what one process has by an update rule of its own.

Also where gradients are summed over W ranks, as declared: the loss is then multiplied by W, and if the optimizer is the
one asked for, plain torch beside that rank is the standard.

Special here: the bound. Gradients are held to the single process's elsewhere, strictly. What a stranger's rule makes of
roundings is not known (Muon turns directions without a gradient into ones of full size, a sign flips), so here a whole
tensor's movement is compared, in its norm: honest rules agree to a thousandth and better, and a parameter that nobody
steps, a factor, or a matrix that was taken in slices, is off by its own size. A rule whose first step is within a
hundredth of the one asked for makes no more of roundings than that does, and is held more strictly.

Where that is exceeded, what the rule makes of roundings is measured: one rank trains twice more, with a little added to
all gradients, and with as much taken off. An element that comes to nothing but roundings, or a momentum that cancels,
whose sign is taken, goes one way in the one and the other way in the other; what lies between them is no mistake.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verifier.check import Findings
from verifier.judge.comparison import compare
from verifier.judge.distance import LEFT_BEHIND, off_by, some_rest
from verifier.judge.movement import common_factor, told, told_by_the_world_size
from verifier.judge.wrong_updates import moved_unused
from verifier.recording import RankRecording, Recording
from verifier.scenario import Scenario
from verifier.verdict import Failure

FOLDER = "alone"  # below the scenario's own
NUDGES = {"nudged_more": 1.0, "nudged_less": -1.0}  # times one of these, far above roundings, far below a mistake:
NUDGE, NUDGE_SINGLE = 2.0**-40, 2.0**-14  # where the model is in float64, and where it is not
BOUND = 0.01  # of the norm of a tensor's whole movement so far, by a rule of its own
BOUND_AS_ASKED = 1e-4  # by torch's SGD or AdamW, in exact arithmetic or float64, or by what is nearly that
NOT_FINITE = "weights have become NaN or infinite, on one rank as well, and tell nothing"
NARROW = ("float16", "bfloat16")  # in which small numbers that a rule adds, as an eps, are nothing
NEVER_MOVES = "never_moves"  # a note that judging makes: an own rule moves no weight in any scenario
LONGEST_REST = 2  # steps of a warm-up that starts at a rate of 0
NOT_FINITE_HERE = "weights have become NaN or infinite by a rule that is the strategy's own: this tells nothing"
AT_REST_HERE = "no weight moved in {num_steps} steps: the optimizer may hold other tensors"
RESTED_HERE = "the weights of {name} moved in none of {num_steps} steps, though it has a gradient, and others moved"
AT_REST = "no weight moved in {num_steps} steps, on one rank either: the optimizer may hold other tensors"


def scenario_alone(scenario: Scenario, *, summed: bool) -> Scenario:
    """One rank, undisturbed, with the samples of all ranks of ``scenario``; its gradient is their sum, or mean.

    It is resumed as they are: what a rule of the strategy's own does not save is lost on one rank, too, and no question
    of replicas.
    """
    changed = {"world_size": 1, "alone_for": scenario.world_size, "delay_ms": 0.0, "own_interpreters": False}
    times = scenario.world_size if summed else 1
    return scenario.model_copy(update={**changed, "loss_times": times})


def scenarios_nudged(scenario: Scenario) -> dict[str, Scenario]:
    """As ``scenario_alone`` of an own rule, by the folder below the scenario's own."""
    alone, size = scenario_alone(scenario, summed=False), NUDGE if "float64" in scenario.needs else NUDGE_SINGLE
    return {folder: alone.model_copy(update={"nudge": sign * size}) for folder, sign in NUDGES.items()}


def has_own_rule(recording: Recording) -> bool:
    return "own_optimizer" in recording.ranks[0].notes


def standard(recording: Recording) -> RankRecording | None:
    """What weights are held to: the one rank's, or, where the optimizer is the one asked for, plain torch's beside it.

    None: there is none, or it did not come to its end.
    """
    if recording.alone is None:
        return None
    found = recording.alone.ranks[0] if has_own_rule(recording) else recording.alone.reference
    return found if found is not None and found.completed else None


def compare_with_alone(recording: Recording, steps: range) -> Findings:
    """Every rank's weights after each of ``steps`` against those of the one rank, the first wrong step ending it.

    ``blocked`` where weights were not recorded.
    """
    alone, findings = standard(recording), Findings()
    assert alone is not None
    bound = _bound(recording, alone)
    for step in steps:
        for name in recording.parameter_names:
            for rank in recording.ranks:
                _compare(recording, alone, rank, step, name, bound, findings)
        if findings.failures:
            break
    if findings.blocked:
        findings.not_claimed = None
    if has_own_rule(recording) and not findings.failures and len(steps) > 1:
        _judge_rested(recording, alone, steps, findings)
    return findings


def nothing_shown(recording: Recording, steps: range) -> str | None:
    """Why weights by a rule that is held to nothing show that nothing was tried, either; None: they show nothing wrong.

    Such a rule is the strategy's own and lossy, or cannot be run on one rank.
    """
    names = recording.parameter_names
    for rank in recording.ranks:
        after = [tensor for name in names if (tensor := rank.tensor("weight", steps[-1], name)) is not None]
        if any(tensor.values is not None and not np.isfinite(tensor.values).all() for tensor in after):
            return NOT_FINITE_HERE
    trained = [name for name in names if _num_due(recording, name, steps, steps)]
    moving = _moving(recording, recording.ranks[0], trained, steps)
    long_enough = len(steps) > LONGEST_REST or bool(recording.ranks[0].notes.get(NEVER_MOVES))
    if long_enough and trained and not moving:
        return AT_REST_HERE.format(num_steps=len(steps))
    if len(moving) <= LONGEST_REST:  # votes that tie, say, let a weight rest as well
        return None
    due = (name for name in trained if _num_due(recording, name, steps, moving))
    rested = next((name for name in due if not _moving(recording, recording.ranks[0], [name], steps)), None)
    return rested and RESTED_HERE.format(name=rested, num_steps=len(steps))


def moves(recording: Recording) -> bool:
    """Does any weight of rank 0 move in any step of which it is known?"""
    held = recording.ranks[0].named("weight", -1)
    for step in range(recording.scenario.num_steps):
        for name, after in recording.ranks[0].named("weight", step).items():
            if name in held and held[name].shape == after.shape and held[name].digest != after.digest:
                return True
    return False


def _judge_rested(recording: Recording, alone: RankRecording, steps: range, findings: Findings) -> None:
    """Parameters that rested in every step in which they had a gradient and others moved, on one rank as well: a
    mistake. Where none moved in more steps than a warm-up may rest, nothing was tried.
    """
    names = recording.parameter_names
    moving = _moving(recording, alone, names, steps)
    rested = [name for name in names if not _moving(recording, alone, [name], steps)]
    if moving:
        findings.failures += _never_stepped(
            recording, [name for name in rested if _num_due(recording, name, steps, moving)], steps
        )
    elif (len(steps) > LONGEST_REST or recording.ranks[0].notes.get(NEVER_MOVES)) and any(
        _num_due(recording, name, steps, steps) for name in rested
    ):
        findings.blocked = AT_REST.format(num_steps=len(steps))


def _moving(recording: Recording, rank: RankRecording, names: Sequence[str], steps: range) -> list[int]:
    """The ``steps`` in which the weights of any of ``names`` moved on ``rank``."""
    found = []
    for step in steps:
        for name in names:
            holder = recording.ranks[0] if step == 0 else rank  # weights before the first step are noted by rank 0
            before, after = holder.tensor("weight", step - 1, name), rank.tensor("weight", step, name)
            if before is None or after is None or before.digest != after.digest:
                found.append(step)
                break
    return found


def _num_due(recording: Recording, name: str, steps: range, moving: Sequence[int]) -> int:
    """In how many of the steps that are ``moving`` ``name`` had a gradient that is not zero. What the single process
    kept is not known for steps that it did not record.
    """
    assert recording.reference is not None
    gradients = [recording.reference.tensor("gradient", step, name) for step in steps if step in moving]
    return sum(g is not None and g.values is not None and bool(g.values.any()) for g in gradients)


def _never_stepped(recording: Recording, names: Sequence[str], steps: range) -> list[Failure]:
    return [
        Failure(
            scenario=recording.scenario.name,
            step=steps[-1],
            rank=rank.rank,
            parameter=name,
            cause="not_stepped",
            confidence=0.7,
            explanation=f"the weights of {name} moved in none of {len(steps)} steps, nor do they on one rank, though "
            "it has a gradient, and other parameters move",
            hint="hand the optimizer every parameter that is trained, or set requires_grad to False",
        )
        for name in names
        for rank in recording.ranks
    ]


def _compare(
    recording: Recording,
    alone: RankRecording,
    rank: RankRecording,
    step: int,
    name: str,
    bound: float,
    findings: Findings,
) -> None:
    start = recording.ranks[0].tensor("weight", -1, name)
    held = [rank.tensor("weight", step, name), alone.tensor("weight", step, name), start]
    found = [tensor.values for tensor in held if tensor is not None and tensor.values is not None]
    if len(found) < len(held):
        findings.blocked = f"the weights after step {step} were not recorded on rank {rank.rank}, or not alone"
        return
    observed, wanted, begun = found
    narrow = any(tensor is not None and tensor.dtype in NARROW for tensor in held)  # in which small steps round to none
    if not np.isfinite(wanted).all() and not np.isfinite(observed).all():
        if narrow:
            findings.not_claimed = f"in half precision {NOT_FINITE}"
        else:
            findings.blocked = NOT_FINITE
        return
    findings.comparisons += 1
    margin = _margin(observed, wanted, begun, bound, narrow=narrow)
    if margin > 1:
        nearest = _nearest(recording, step, name, observed, wanted)
        margin = min(margin, _margin(observed, nearest, begun, bound, narrow=narrow))
    findings.note_margin(margin)
    if margin > 1:
        findings.failures.append(_failure(recording, alone, rank, step, name, observed, wanted))


def _margin(observed: np.ndarray, wanted: np.ndarray, begun: np.ndarray, bound: float, *, narrow: bool) -> float:
    """By how many times ``bound`` the movement is off; more than 1, too, where single elements were left behind."""
    margin = off_by(observed, wanted, begun) / bound
    return max(margin, LEFT_BEHIND) if not narrow and some_rest(observed, wanted, begun) else margin


def _nearest(recording: Recording, step: int, name: str, observed: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """What is nearest to ``observed`` of all that lies between what one rank comes to, nudged and not."""
    ranks = [nudged.ranks[0] for nudged in recording.nudged if nudged.ranks[0].completed]
    found = [tensor.values for rank in ranks if (tensor := rank.tensor("weight", step, name)) is not None]
    values = [held for held in found if held is not None and held.shape == wanted.shape == observed.shape]
    if len(values) < len(NUDGES) or wanted.dtype.kind == "c":
        return wanted
    low, high = (extreme.reduce([wanted, *values]) for extreme in (np.minimum, np.maximum))
    return np.clip(observed, low, high)


def _bound(recording: Recording, alone: RankRecording) -> float:
    """Of the norm of a movement, by how far the first step alone is from the single process's."""
    if not has_own_rule(recording):
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
            "give every parameter an owner who steps it, and hand out what it comes to",
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
        "let whoever computes an update see the whole gradient, averaged, and the state that belongs to it",
        0.5,
    )


def _those(recording: Recording) -> str:
    if has_own_rule(recording):
        return "those that the same strategy comes to on one rank, with everybody's samples"
    return f"those of a single process whose loss is multiplied by {recording.scenario.world_size}, as sums are"

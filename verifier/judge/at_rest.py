"""Weights that rest under an update rule without a strict standard: nothing is trained, or one parameter is not.

Special here: a rule of the strategy's own may rightly rest for a while, in a warm-up, or for good where no gradient
reaches a layer any more. What is told must have had a gradient while others moved, longer than a warm-up takes. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verifier.check import Findings
from verifier.recording import RankRecording, Recording
from verifier.verdict import Failure

EXPLAINS = "LS202"  # failures of this check: `causes` reads it here
LONGEST_REST = 2  # steps of a warm-up that starts at a rate of 0
NOT_FINITE_HERE = "weights have become NaN or infinite by a rule that is the strategy's own: this tells nothing"
AT_REST_HERE = "no weight moved in {num_steps} steps: the optimizer may hold other tensors"
RESTED_HERE = "the weights of {name} moved in none of {num_steps} steps, though it has a gradient, and others moved"
AT_REST = "no weight moved in {num_steps} steps, on one rank either: the optimizer may hold other tensors"


def nothing_shown(recording: Recording, steps: range) -> str | None:
    """Return why weights under a rule without a standard are no evidence of training; None if nothing looks wrong.

    Such a rule is the strategy's own, and it is lossy or cannot be run on one rank.
    """
    names = recording.parameter_names
    for rank in recording.ranks:
        after = [tensor for name in names if (tensor := rank.tensor("weight", steps[-1], name)) is not None]
        if any(tensor.values is not None and not np.isfinite(tensor.values).all() for tensor in after):
            return NOT_FINITE_HERE
    trained = [name for name in names if _num_due(recording, name, steps, steps)]
    moving = _moving(recording, recording.ranks[0], trained, steps)
    long_enough = len(steps) > LONGEST_REST or recording.derived.never_moves
    if long_enough and trained and not moving:
        return AT_REST_HERE.format(num_steps=len(steps))
    if len(moving) <= LONGEST_REST:  # a weight may also rest for another reason, such as tied votes
        return None
    due = (name for name in trained if _num_due(recording, name, steps, moving))
    rested = next((name for name in due if not _moving(recording, recording.ranks[0], [name], steps)), None)
    return rested and RESTED_HERE.format(name=rested, num_steps=len(steps))


def moves(recording: Recording) -> bool:
    """Return whether any weight of rank 0 moves in any recorded step."""
    held = recording.ranks[0].named("weight", -1)
    for step in range(recording.scenario.num_steps):
        for name, after in recording.ranks[0].named("weight", step).items():
            if name in held and held[name].shape == after.shape and held[name].digest != after.digest:
                return True
    return False


def judge_rested(recording: Recording, alone: RankRecording, steps: range, findings: Findings) -> None:
    """Add failures for parameters that never moved, on one rank either, though they had a gradient and others moved.

    If no parameter moved in more steps than a warm-up may rest, nothing was tested.
    """
    names = recording.parameter_names
    moving = _moving(recording, alone, names, steps)
    rested = [name for name in names if not _moving(recording, alone, [name], steps)]
    if moving:
        findings.failures += _never_stepped(
            recording, [name for name in rested if _num_due(recording, name, steps, moving)], steps
        )
    elif (len(steps) > LONGEST_REST or recording.derived.never_moves) and any(
        _num_due(recording, name, steps, steps) for name in rested
    ):
        findings.blocked = AT_REST.format(num_steps=len(steps))


def _moving(recording: Recording, rank: RankRecording, names: Sequence[str], steps: range) -> list[int]:
    """The ``steps`` in which the weights of any of ``names`` moved on ``rank``, or may have: they were not recorded."""
    found = []
    for step in steps:
        for name in names:
            holder = recording.ranks[0] if step == 0 else rank  # only rank 0 records weights before the first step
            before, after = holder.tensor("weight", step - 1, name), rank.tensor("weight", step, name)
            if before is None or after is None or before.digest != after.digest:
                found.append(step)
                break
    return found


def _num_due(recording: Recording, name: str, steps: range, moving: Sequence[int]) -> int:
    """The number of ``moving`` steps in which ``name`` had a non-zero gradient in the single process.

    Steps that the single process did not record do not count, nor do those in which all ranks show zeros: by a rule of
    its own a model may come to where a layer has no gradient any more.
    """
    assert recording.reference is not None
    due = 0
    for step in set(steps).intersection(moving):
        gradient = recording.reference.tensor("gradient", step, name)
        is_some = gradient is not None and gradient.values is not None and bool(gradient.values.any())
        due += is_some and _shown(recording, step, name) is not False
    return due


def _shown(recording: Recording, step: int, name: str) -> bool | None:
    """Return whether any rank shows a gradient that is not all zeros; None if one shows none."""
    held = [rank.tensor("gradient", step, name) for rank in recording.ranks]
    values = [tensor.values for tensor in held if tensor is not None and tensor.values is not None]
    return None if len(values) < len(held) else any(bool(of_rank.any()) for of_rank in values)


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

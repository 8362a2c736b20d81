"""What becomes of a weight whose gradient is infinite on one rank. Pure.

Special here: several ends are right, and a step with what is left over is not. One process would have an infinite
weight, or, with a loss scaler, would leave out the step: so the weight has not moved, or is not finite. If it has moved
by a number, the infinity was taken for zero, or for something large, and no scaler on any rank can see that it was
there.
"""

from __future__ import annotations

import numpy as np

from verifier.check import Findings
from verifier.judge.arithmetic import is_lossy, own_steps
from verifier.judge.updates import compare_weights
from verifier.recording import RankRecording, Recording
from verifier.verdict import Failure


def compare_overflow(recording: Recording) -> Findings:
    """The weight with the infinite gradient on every rank, before the step and after it.

    Nothing is said where ranks came to different ends, which LS101 says, or where the other weights are wrong as well.
    """
    if is_lossy(recording):
        return Findings(not_claimed="the strategy declares what it loses on the wire: infinity may be among it")
    if reason := own_steps(recording):
        return Findings(not_claimed=reason)
    findings, infinite = Findings(), recording.ranks[-1].notes.get("arrived") or {}
    if not infinite:
        return Findings(not_claimed="the gradient was infinite in a parameter that is not the one that is trained")
    for name in infinite:
        moved = [_moved(rank, name) for rank in recording.ranks]
        if None in moved:
            return Findings(blocked=f"the weights of {name} were not recorded on every rank")
        findings.comparisons += len(moved)
        if all(moved):
            findings.failures += [_failure(recording, rank.rank, name) for rank in recording.ranks]
    if findings.failures and any(f.parameter not in infinite for f in compare_weights(recording, range(1)).failures):
        return Findings(blocked="weights are wrong whose gradients were finite, too: see LS201")
    return findings


def _moved(rank: RankRecording, name: str) -> bool | None:
    """Is the weight another one after the first step, and all numbers? None: not known."""
    before, after = rank.tensor("weight", -1, name), rank.tensor("weight", 0, name)
    if before is None or after is None or after.values is None:
        return None
    return before.digest != after.digest and bool(np.isfinite(after.values).all())


def _failure(recording: Recording, rank: int, name: str) -> Failure:
    last = recording.scenario.world_size - 1
    return Failure(
        scenario=recording.scenario.name,
        step=0,
        rank=rank,
        parameter=name,
        expected="a weight that rests, or is no number any more",
        observed="a weight that has moved by a number",
        cause="infinity_hidden",
        confidence=0.9,
        explanation=f"rank {last}'s gradient of {name} was infinite in step 0, and on every rank {name} has moved by a "
        "number all the same: the infinity was left out of the mean, or replaced",
        hint="let what is not finite travel, so that all ranks see it; or leave out the step on all of them",
    )

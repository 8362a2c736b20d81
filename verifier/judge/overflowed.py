"""What becomes of a weight whose gradient is infinite on one rank, or no number. Pure.

Special here: several ends are right, and a step with what is left over is not. One process would have an infinite
weight, or, with a loss scaler, would leave out the step: so the weight has not moved, or is not finite. If it has moved
by a number, the infinity was taken for zero, or for something large, and no scaler on any rank can see that it was
there. Nor is a step right that is left out for some of the other weights: who leaves it out does so for all, and goes
on with the next.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from verifier.check import Findings
from verifier.judge.arithmetic import is_lossy, own_steps
from verifier.judge.inquiry import local_gradients
from verifier.judge.movement import rests
from verifier.judge.updates import compare_weights
from verifier.lines import STOPPED_AFTER
from verifier.recording import RankRecording, Recording
from verifier.spikes import LATER, ON_ALL, spiked_first
from verifier.verdict import Failure

LONGEST_DELAY = 2  # steps: gradients may be applied a step late, and rightly
SPIKED = {"inf": "infinite", "nan": "no number (NaN)"}  # what is said of a scenario's spike


def compare_overflow(recording: Recording) -> Findings:
    """The weight with the infinite gradient on every rank, before the step and after it.

    Nothing is said where ranks came to different ends, which LS101 says, or where the other weights are wrong as well,
    unless all of the spiked rank's share was dropped.
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
    in_part = _resting(recording, set(infinite))
    explained = {*infinite, *in_part}
    findings.failures += [_partial(recording, rank.rank, name) for name in in_part for rank in recording.ranks]
    if not findings.failures and (name := _never_again(recording)) is not None:
        findings.failures += [_stuck(recording, rank.rank, name) for rank in recording.ranks]
        return findings
    if not findings.failures:
        for step in (LATER, ON_ALL) if recording.scenario.rank_0_first else (LATER,):
            taken = [name for name in infinite if _taken_later(recording, name, step)]
            findings.failures += [
                _not_left_out(recording, r.rank, name, step) for name in taken for r in recording.ranks
            ]
        return findings
    if findings.failures and not _explains(recording, infinite, explained):
        return Findings(blocked="weights are wrong whose gradients were finite, too: see LS201")
    return findings


def _explains(recording: Recording, infinite: Collection[str], explained: set[str]) -> bool:
    """Is no weight wrong but those that are ``explained``, or is all of the spiked rank's share missing?"""
    if explained.issuperset(f.parameter for f in compare_weights(recording, range(1)).failures):
        return True
    return all(_without_the_spiked(recording, name) for name in recording.parameter_names if name not in infinite)


def _without_the_spiked(recording: Recording, name: str) -> bool:
    """Has the weight moved on all ranks as if the one whose gradient was infinite elsewhere had brought zeros?
    Then all of its share was dropped: what is wrong of this weight is no other mistake.
    """
    own, size = local_gradients(recording, 0, name), recording.scenario.world_size
    before = recording.ranks[0].tensor("weight", -1, name)
    if before is None or before.values is None or own.keys() < {*range(size)}:
        return False
    counted = [own[rank].astype(np.float64) for rank in range(size) if rank != spiked_first(recording.scenario)]
    others = np.sum(counted, axis=0) * recording.scenario.lr
    end = before.values - others / size
    after = [rank.tensor("weight", 0, name) for rank in recording.ranks]
    values = [tensor.values for tensor in after if tensor is not None and tensor.values is not None]
    return len(values) == size and all(np.allclose(value, end, 1e-5, 1e-5) for value in values)


def _resting(recording: Recording, infinite: set[str]) -> list[str]:
    """Weights with finite gradients that rest on all ranks, while others move: owners looked each by itself."""
    steps = [name for name in recording.parameter_names if name not in infinite and _is_to_move(recording, name)]
    resting = [name for name in steps if all(rests(rank, name, -1, 0) for rank in recording.ranks)]
    return [] if len(resting) == len(steps) else resting


def _never_again(recording: Recording) -> str | None:
    """A weight of those that rest after the first step, on all ranks, and after the later ones whose gradients are
    finite, as all of them do.
    """
    last, names = LONGEST_DELAY, recording.parameter_names
    if recording.scenario.num_steps <= last or any(STOPPED_AFTER in rank.notes for rank in recording.ranks):
        return None
    names = [name for name in names if _is_to_move(recording, name)]
    rest = all(rests(rank, name, -1, last) for name in names for rank in recording.ranks)
    return names[0] if names and rest else None


def _taken_later(recording: Recording, name: str, later: int) -> bool:
    """Was the step left out when one rank's gradient was infinite, and taken when all ranks' were, or another's was?

    Before that a step was taken, so that it is no earlier gradient that comes late.
    """
    ends = [[rank.tensor("weight", step, name) for rank in recording.ranks] for step in range(later + 1)]
    if any(end is None or end.values is None for of_ranks in ends for end in of_ranks):
        return False
    rested = all(rests(rank, of, -1, 0) for of in recording.parameter_names for rank in recording.ranks)
    went_on = not any(rests(rank, name, -1, later - 1) for rank in recording.ranks)
    finite = [bool(np.isfinite(end.values).all()) for end in ends[later] if end is not None and end.values is not None]
    return rested and went_on and not any(finite)


def _is_to_move(recording: Recording, name: str) -> bool:
    gradient = None if recording.reference is None else recording.reference.tensor("gradient", 0, name)
    return gradient is not None and gradient.values is not None and bool(gradient.values.any())


def _moved(rank: RankRecording, name: str) -> bool | None:
    """Is the weight another one after the first step, and all numbers? None: not known."""
    before, after = rank.tensor("weight", -1, name), rank.tensor("weight", 0, name)
    if before is None or after is None or after.values is None:
        return None
    return before.digest != after.digest and bool(np.isfinite(after.values).all())


def _failure(recording: Recording, rank: int, name: str) -> Failure:
    first, spiked = spiked_first(recording.scenario), SPIKED[recording.scenario.spike]
    return Failure(
        scenario=recording.scenario.name,
        step=0,
        rank=rank,
        parameter=name,
        expected="a weight that rests, or is no number any more",
        observed="a weight that has moved by a number",
        cause="infinity_hidden",
        confidence=0.9,
        explanation=f"rank {first}'s gradient of {name} was {spiked} in step 0, and on every rank {name} has moved by "
        "a number all the same: that was left out of the mean, or replaced",
        hint="let what is not finite travel, so that all ranks see it; or leave out the step on all of them",
    )


def _stuck(recording: Recording, rank: int, name: str) -> Failure:
    last = LONGEST_DELAY
    return Failure(
        scenario=recording.scenario.name,
        step=last,
        rank=rank,
        parameter=name,
        expected="a step, once gradients are finite again",
        observed="weights that rest for good",
        cause="never_steps_again",
        confidence=0.9,
        explanation=f"a gradient was {SPIKED[recording.scenario.spike]} in step 0, which was left out, and so was "
        f"every step after it up to step {last}, though gradients are finite there: no weight moves on any rank",
        hint="clear what was accumulated where a step is left out: main gradients, residuals, a flag that was set",
    )


def _not_left_out(recording: Recording, rank: int, name: str, step: int) -> Failure:
    first, spiked = spiked_first(recording.scenario), SPIKED[recording.scenario.spike]
    later = "all ranks' were"
    if recording.scenario.rank_0_first and step == LATER:
        later = f"rank {recording.scenario.world_size - 1}'s was"
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        parameter=name,
        expected="a step that is left out, as before",
        observed="a weight that is no number any more",
        cause="taken_from_all",
        confidence=0.9,
        explanation=f"the step was left out when rank {first}'s gradient of {name} alone was {spiked}, and in step "
        f"{step}, where {later}, it was taken",
        hint="leave out the step where any rank has met what is not finite: a sum of flags greater than 0, or their "
        "maximum",
    )


def _partial(recording: Recording, rank: int, name: str) -> Failure:
    return Failure(
        scenario=recording.scenario.name,
        step=0,
        rank=rank,
        parameter=name,
        expected="a step of all weights, or of none",
        observed="a weight that rests, though its gradient is finite",
        cause="left_out_in_part",
        confidence=0.9,
        explanation=f"a gradient was {SPIKED[recording.scenario.spike]} in step 0, and {name}, whose own is finite, "
        "rests on all ranks, while others move: whoever owns it has left out the step for itself",
        hint="all-reduce whether anything is infinite before anybody steps, and leave out the step on all ranks or on "
        "none",
    )

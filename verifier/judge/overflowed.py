"""What happens to a weight whose gradient is infinite or NaN on one rank. Pure.

Special here: after an infinite or NaN gradient on one rank, a weight may become non-finite, as in one process, or stay
unchanged, as with a loss scaler that skips the step. Moving by a finite amount means that the value was dropped or
replaced, and no loss scaler on any rank can see it. It is also wrong to skip the step for only some of the other
weights: a strategy that skips a step must skip it for all weights, and must take the next one. That the weight with the
infinite gradient rests alone, as after a replacement by 0 on every rank, is not told from a step that was skipped.
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

EXPLAINS = "LS202"  # failures of this check: `causes` reads it here
LONGEST_DELAY = 2  # steps: a correct strategy may apply gradients a step late
NEVER = "no weight moves in any scenario, whether its gradients are finite or not"
SPIKED = {"inf": "infinite", "nan": "NaN"}  # words for a scenario's spike


def compare_overflow(recording: Recording) -> Findings:
    """Compare, on every rank, the weight with the infinite gradient before and after the step.

    Nothing is reported if ranks reached different weights (LS101 reports that), or if other weights are wrong as well,
    unless all of the spiked rank's share was dropped.
    """
    if is_lossy(recording):
        return Findings(not_claimed="the strategy declares what it loses on the wire: infinity may be among it")
    if recording.own_rule:
        return Findings(not_claimed=own_steps(recording))
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
        if recording.derived.at_rest:
            return Findings(blocked=NEVER)
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
    """Return whether all wrong weights are ``explained``, or all of the spiked rank's share is missing.

    With a declared sum no step is as long as the single process's, and nothing tells the wrong ones.
    """
    if own_steps(recording):
        return True
    if explained.issuperset(f.parameter for f in compare_weights(recording, range(1)).failures):
        return True
    return all(_without_the_spiked(recording, name) for name in recording.parameter_names if name not in infinite)


def _without_the_spiked(recording: Recording, name: str) -> bool:
    """Return whether the weight moved on all ranks as if the spiked rank had contributed zeros.

    Then that rank's whole share was dropped, and this weight shows no other mistake.
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
    """Weights with finite gradients that rest on all ranks while others move: each owner decided for itself.

    It did not if no rank shows a gradient of it but zeros.
    """
    steps = [name for name in recording.parameter_names if name not in infinite and _is_to_move(recording, name)]
    resting = [name for name in steps if all(rests(rank, name, -1, 0) for rank in recording.ranks)]
    if len(resting) == len(steps):
        return []
    return [name for name in resting if not all(_idle(rank, name) for rank in recording.ranks)]


def _idle(rank: RankRecording, name: str) -> bool:
    """Return whether nothing was to move ``name`` on ``rank`` in the first step."""
    gradient = rank.tensor("gradient", 0, name)
    return gradient is None or (gradient.values is not None and not gradient.values.any())


def _never_again(recording: Recording) -> str | None:
    """A weight, if all weights rest on all ranks in the first step and in the later ones, whose gradients are finite.

    None if any weight moves, or if there are too few steps to conclude it.
    """
    last, names = LONGEST_DELAY, recording.parameter_names
    if recording.scenario.num_steps <= last or any(STOPPED_AFTER in rank.notes for rank in recording.ranks):
        return None
    names = [name for name in names if _is_to_move(recording, name)]
    rest = all(rests(rank, name, -1, last) for name in names for rank in recording.ranks)
    return names[0] if names and rest else None


def _taken_later(recording: Recording, name: str, later: int) -> bool:
    """Return whether the first step, with one rank's gradient infinite, was skipped and step ``later`` was taken.

    In ``later`` the gradient of all ranks, or of another rank, is infinite. A step was taken before it, so no earlier
    gradient arrives late in it.
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
    """Return whether the weight changed in the first step and is finite; None if unknown."""
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
        expected="a weight that has not moved, or is not finite",
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
    where = "any rank has met what is not finite"
    if recording.scenario.rank_0_first and step == LATER:
        later = f"rank {recording.scenario.world_size - 1}'s was"
    if recording.scenario.spike_early:
        later, where = "it was so in the first micro-batch and not in the last", f"{where}, in any micro-batch"
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        parameter=name,
        expected="a step that is left out, as before",
        observed="a weight that is not finite",
        cause="taken_from_all",
        confidence=0.9,
        explanation=f"the step was left out when rank {first}'s gradient of {name} alone was {spiked}, and in step "
        f"{step}, where {later}, it was taken",
        hint=f"leave out the step where {where}: a sum of flags greater than 0, or their maximum",
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
        "has not moved on any rank, while others have: its owner skipped the step by itself",
        hint="all-reduce whether anything is infinite before anybody steps, and leave out the step on all ranks or on "
        "none",
    )

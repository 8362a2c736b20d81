"""Whether a step is skipped for one rank's loss and taken for another's. A pure function on recordings.

Special here: a constant makes the loss infinite or NaN, and all gradients are right. Taking the step and skipping it
are both right; doing one for rank 0 and the other for the last rank is wrong. Rank 0's spikes come before and after the
last rank's, so a guard that begins late, or gives up, cannot be the reason. The steps between must have been taken, so
gradients applied a step late, or a learning rate that grows from zero, cannot be the reason either.
"""

from __future__ import annotations

from itertools import pairwise

from verifier.check import Findings
from verifier.recording import RankRecording, Recording
from verifier.spikes import LATER, RANK_0S_LOSSES
from verifier.verdict import Failure

EXPLAINS = "LS202"  # failures of this check: `causes` reads it here
STEPS = range(max(RANK_0S_LOSSES) + 1)


def compare_steps_taken(recording: Recording) -> Findings:
    """Check that ranks took, or skipped, the steps of rank 0's spikes and of the last rank's spike alike."""
    if not recording.scenario.rank_0_first or recording.scenario.world_size == 1:
        return Findings(not_claimed="one rank alone meets it: it may take the step with the others, or leave it out")
    if not recording.complete:
        return Findings(blocked="not every rank came to its end")
    by_rank = [_taken(rank, recording.parameter_names) for rank in recording.ranks]
    if None in by_rank:
        return Findings(blocked="weights were not recorded on every rank in every step")
    if any(taken != by_rank[0] for taken in by_rank):
        return Findings(blocked="ranks have taken other steps than one another: see LS101")
    taken = by_rank[0] or []
    if not all(taken[step] for step in STEPS if step not in (*RANK_0S_LOSSES, LATER)):
        return Findings(not_claimed="steps in which all losses are numbers were not taken either")
    findings, of_rank_0 = Findings(comparisons=len(by_rank)), {taken[step] for step in RANK_0S_LOSSES}
    if of_rank_0 == {not taken[LATER]}:
        findings.failures = [_failure(recording, rank.rank, of_last=not taken[LATER]) for rank in recording.ranks]
    return findings


def _taken(rank: RankRecording, names: list[str]) -> list[bool] | None:
    """Whether any weight moved, by step; None if a weight was not recorded."""
    held = [[rank.tensor("weight", step, name) for name in names] for step in (-1, *STEPS)]
    if not names or any(tensor is None for of_step in held for tensor in of_step):
        return None
    digests = [[tensor.digest for tensor in of_step if tensor is not None] for of_step in held]
    return [before != after for before, after in pairwise(digests)]


def _failure(recording: Recording, rank: int, *, of_last: bool) -> Failure:
    """The failure on ``rank``. ``of_last``: the step of the last rank's spike is the one that is skipped."""
    last, what = recording.scenario.world_size - 1, "NaN" if recording.scenario.spike == "nan" else "infinite"
    one, other = (last, 0) if of_last else (0, last)
    return Failure(
        scenario=recording.scenario.name,
        step=LATER,
        rank=rank,
        expected="all of these steps, or none",
        observed=f"those of rank {one}'s left out, and those of rank {other}'s taken",
        cause="one_rank_decides",
        confidence=0.9,
        explanation=f"where rank {one}'s loss was {what}, the step is left out on rank {rank}, and where rank "
        f"{other}'s was, it is taken",
        hint="decide by all ranks' losses: all-reduce a flag, and leave out the step where any rank has set it",
    )

"""Is a step left out for one rank's loss, and taken for another's? A pure function on recordings.

Special here: the loss is infinite, or no number, by a constant, and all gradients are right: to take the step and to
leave it out are both right, and only to do the one for rank 0 and the other for the last rank is not. In the first step
and in the third all losses are numbers, and those must have been taken: gradients that are applied a step late, or a
rate that grows from zero, are then no reason.
"""

from __future__ import annotations

from itertools import pairwise

from verifier.check import Findings
from verifier.recording import RankRecording, Recording
from verifier.spikes import BEFORE, LATER
from verifier.verdict import Failure


def compare_steps_taken(recording: Recording) -> Findings:
    """Whether all ranks took both the step of rank 0's spike and that of the last rank's, or neither."""
    if not recording.scenario.rank_0_first:
        return Findings(not_claimed="one rank alone meets it: it may take the step with the others, or leave it out")
    if not recording.complete:
        return Findings(blocked="not every rank came to its end")
    by_rank = [_taken(rank, recording.parameter_names) for rank in recording.ranks]
    if any(taken != by_rank[0] for taken in by_rank):
        return Findings(blocked="ranks have taken other steps than one another: see LS101")
    findings, taken = Findings(comparisons=len(by_rank)), by_rank[0]
    if taken[BEFORE - 1] and taken[LATER - 1] and taken[BEFORE] != taken[LATER]:
        left_out = LATER if taken[BEFORE] else BEFORE
        findings.failures = [_failure(recording, rank.rank, left_out) for rank in recording.ranks]
    return findings


def _taken(rank: RankRecording, names: list[str]) -> list[bool]:
    """By step: has any weight moved?"""
    digests = [
        [getattr(rank.tensor("weight", step, name), "digest", None) for name in names] for step in range(-1, LATER + 1)
    ]
    return [before != after for before, after in pairwise(digests)]


def _failure(recording: Recording, rank: int, left_out: int) -> Failure:
    last, what = recording.scenario.world_size - 1, "NaN" if recording.scenario.spike == "nan" else "infinite"
    one, other = (0, last) if left_out == BEFORE else (last, 0)
    return Failure(
        scenario=recording.scenario.name,
        step=LATER,
        rank=rank,
        expected="both steps, or neither",
        observed=f"step {left_out} left out, and the other taken",
        cause="one_rank_decides",
        confidence=0.9,
        explanation=f"the step in which rank {one}'s loss was {what} is left out on rank {rank}, and the one in which "
        f"rank {other}'s was is taken",
        hint="decide by all ranks' losses: all-reduce a flag, and leave out the step where any rank has set it",
    )

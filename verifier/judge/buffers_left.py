"""Whether the buffers that a forward reads come from what earlier forwards left. Pure functions on recordings.

Special here: the caller says which ranks' forwards count. For a job these are all ranks. For a strategy that was given
a process group these are that group's ranks; the statistics of other ranks belong to another training run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verifier.check import Findings
from verifier.judge.agreement import told_early
from verifier.judge.arithmetic import contract_of
from verifier.judge.comparison import UNIT_ROUNDOFF, Difference, compare
from verifier.recording import RankRecording, Recording, Tensor
from verifier.subgroups import groups, listed, members
from verifier.verdict import Failure

EXPLAINS = "LS102"  # failures of this check: `causes` reads it here
ROUNDINGS = 4  # of a declared wire: statistics may be rounded like gradients, and follow from weights that were
SLACK = 1e-5  # of the larger end: rounding may put a mean of W float32 numbers outside their range by some 1e-7


def slack(recording: Recording) -> float:
    """How far a buffer may be from what it should hold, relative to the largest number, if a lossy wire is declared."""
    declared = contract_of(recording).get("lossy")
    return ROUNDINGS * UNIT_ROUNDOFF[declared] if declared else 0.0


def outside_of_what_was_left(
    found: Tensor, ranks: Sequence[RankRecording], step: int, name: str, slack: float = 0.0
) -> Difference | None:
    """How far buffer ``name``, as a forward of ``step`` read it, lies outside the range that ``ranks`` left before it.

    The range is per element. None if the buffer has no floats, or if not all that ``ranks`` left is known. One rank's
    values, a mean and a maximum all lie within it. A variance may exceed it by the variance of the ranks' means (in
    synchronised BatchNorm), which is at most the square of half their range.
    """
    ends = _ends(ranks, step - 1, name)
    if ends is None or found.values is None or not found.dtype.startswith("float"):
        return None
    low, high = ends
    if found.values.shape != low.shape:
        return compare(found.values, low, 0.0)
    if name.endswith("running_var") and (means := _ends(ranks, step - 1, name.replace("_var", "_mean"))):
        high = high + ((means[1] - means[0]) / 2) ** 2
    nearest = np.where(np.isnan(found.values), low, np.clip(found.values, low, high))  # NaN lies nowhere
    return compare(found.values, nearest, max(slack, SLACK) * np.maximum(np.abs(low), np.abs(high)) + 1e-30)


def _ends(ranks: Sequence[RankRecording], step: int, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """The smallest and largest values that ``ranks`` left in buffer ``name``, per element.

    None if values are missing or of different shapes.
    """
    tensors = [rank.tensor("left_buffer", step, name) for rank in ranks]
    values = [tensor.values for tensor in tensors if tensor is not None and tensor.values is not None]
    if len(values) < len(tensors) or len({one.shape for one in values}) != 1:
        return None
    return np.minimum.reduce(values), np.maximum.reduce(values)


def buffers_in_groups(recording: Recording) -> Findings:
    """Compare every rank's floating buffers, in each step after the first, with what its group's ranks left in them."""
    findings = Findings()
    if not recording.complete:
        findings.blocked = "not every rank came to its end in the group that it was given"
    for step in range(1, recording.scenario.num_steps):
        for rank in recording.ranks:
            mine = members(recording.scenario.world_size, rank.rank)
            for name, found in rank.named("buffer", step).items():
                difference = outside_of_what_was_left(found, _ranks(recording, mine), step, name, slack(recording))
                findings.comparisons += difference is not None
                if difference is not None and not difference.equal:
                    failure = _failure(recording, rank.rank, step, name, found, difference)
                    findings.failures += told_early([failure], [found])
        if findings.failures:
            break
    return findings


def _ranks(recording: Recording, numbers: Sequence[int]) -> list[RankRecording]:
    return [rank for rank in recording.ranks if rank.rank in numbers]


def _failure(recording: Recording, rank: int, step: int, name: str, found: Tensor, difference: Difference) -> Failure:
    world_size = recording.scenario.world_size
    mine = members(world_size, rank)
    others = [group for group in groups(world_size) if group != mine]
    whose = next((group for group in others if _fits(recording, group, step, name, found)), None)
    if whose is not None:
        cause, confidence, left_by = "another_groups", 1.0, f"that {listed(whose)} left"
    elif _fits(recording, range(world_size), step, name, found):
        cause, confidence, left_by = "reduced_over_the_job", 0.9, "that comes from other ranks as well"
    else:
        cause, confidence, left_by = "buffers_invented", 0.9, "that no rank left"
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank,
        parameter=name,
        index=list(difference.index),
        expected=f"within what {listed(mine)} left: {difference.expected:g} at most or at least",
        observed=f"{difference.observed:g}",
        cause=cause,
        confidence=confidence,
        explanation=f"rank {rank} was given the process group of {listed(mine)}, and in step {step} its forward finds "
        f"{difference.observed:g} in {name}, {left_by}",
        hint="synchronise buffers in the group that was given, from its own first rank: "
        "dist.broadcast(buffer, group=group, group_src=0)",
    )


def _fits(recording: Recording, ranks: Sequence[int], step: int, name: str, found: Tensor) -> bool:
    """Return whether ``found`` can come from what ``ranks`` left."""
    difference = outside_of_what_was_left(found, _ranks(recording, ranks), step, name, slack(recording))
    return difference is not None and difference.equal

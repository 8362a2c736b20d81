"""Gradients of ranks that train in groups of their own: each group's mean, and nobody else's. Pure functions.

Special here: the single process has no such thing as a group, but it has computed each rank's own gradient.
"""

from __future__ import annotations

import numpy as np

from verifier.check import Findings
from verifier.judge.arithmetic import contract_of
from verifier.judge.equivalence import blocked_reference
from verifier.judge.inquiry import local_gradients
from verifier.recording import RankRecording, Recording
from verifier.subgroups import members
from verifier.verdict import Failure

HIDDEN = "gradients are not what .grad shows, and weights are held to no group's large batch"


def compare_in_groups(recording: Recording) -> Findings:
    """Every rank's gradient of the first step against that of its group, which is exact here.

    Not claimed where a rank of several still holds its own: whoever reduces elsewhere is judged by weights, and those
    of a group are not known.
    """
    contract = contract_of(recording)
    if contract.get("lossy") or contract.get("sharded"):
        return Findings(not_claimed=HIDDEN)
    findings, world_size = Findings(blocked=blocked_reference(recording)), recording.scenario.world_size
    for name in recording.parameter_names if not findings.blocked else ():
        own = {rank: values.astype(np.float64) for rank, values in local_gradients(recording, 0, name).items()}
        for rank in recording.ranks:
            group = members(world_size, rank.rank)
            if own.keys() < {*range(world_size)}:
                continue
            due = _together(own, group, summed=contract.get("average") == "sum")
            observed = rank.tensor("gradient", 0, name)
            held = None if observed is None or observed.values is None else observed.values.astype(np.float64)
            findings.comparisons += 1
            if held is None or (len(group) > 1 and np.array_equal(held, own[rank.rank])):
                return Findings(not_claimed=HIDDEN)
            if not np.array_equal(held, due):
                findings.failures.append(_failure(recording, rank, name, held, due, own))
    return findings


def _together(own: dict[int, np.ndarray], ranks: tuple[int, ...], *, summed: bool) -> np.ndarray:
    total: np.ndarray = np.sum([own[rank] for rank in ranks], axis=0)
    return total if summed else total / len(ranks)


def _failure(
    recording: Recording,
    rank: RankRecording,
    name: str,
    held: np.ndarray,
    due: np.ndarray,
    own: dict[int, np.ndarray],
) -> Failure:
    group, everybody = members(recording.scenario.world_size, rank.rank), tuple(range(recording.scenario.world_size))
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(held != due)), held.shape))
    where = f"rank {rank.rank} was given the process group of ranks {', '.join(map(str, group))}, and its gradient"
    in_job = [_together(own, everybody, summed=summed) for summed in (False, True)]
    hint = "name the group wherever torch is asked for a rank, a world size, a root or a collective"
    if any(np.array_equal(held, whole) for whole in in_job):
        cause, confidence = "reduced_over_the_job", 1.0
        explanation = f"{where} of {name} is that of all ranks"
        hint = "hand the group to every collective"
    elif np.array_equal(held * len(everybody), due * len(group)):
        cause, confidence = "divided_by_the_job", 0.95
        explanation = f"{where} of {name} is divided by {len(everybody)}, the number of all ranks"
        hint = "divide by get_world_size(group)"
    else:
        cause, confidence = None, 0.0
        explanation = f"{where} of {name} is not the mean over that group"
    return Failure(
        scenario=recording.scenario.name,
        step=0,
        rank=rank.rank,
        parameter=name,
        index=list(index),
        expected=repr(float(due[index])),
        observed=repr(float(held[index])),
        cause=cause,
        confidence=confidence,
        explanation=explanation,
        hint=hint,
    )

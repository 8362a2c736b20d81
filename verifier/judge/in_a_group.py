"""Gradients of ranks that train in groups of their own: each must be its group's mean. Pure functions.

Special here: the single process has no groups, but it has computed each rank's own gradient. Where ``.grad`` does not
show the gradient that was stepped by, the weights do: it is a step of plain SGD. After the first step groups are at
weights that the single process never had, so later steps are compared where gradients are tagged, which depend on no
weights. A strategy that names a rank of another group is stopped by torch, and recognised by torch's message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial

import numpy as np

from verifier.check import Findings
from verifier.judge.arithmetic import contract_of, is_exact, is_wide
from verifier.judge.comparison import UNIT_ROUNDOFF, widened
from verifier.judge.equivalence import blocked_reference
from verifier.judge.inquiry import local_gradients
from verifier.judge.late_tags import equal_on_arrival, not_reached, tagged_too_late, unreached
from verifier.recording import RankRecording, Recording
from verifier.scenario import SGD_MOMENTUM
from verifier.subgroups import groups, listed, members
from verifier.verdict import Failure

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
HIDDEN = "gradients are not what .grad shows, and what a group's weights should be is not known"
NOT_A_MEMBER = re.compile(r"Global rank (\d+) is not part of group")  # torch's own words
OTHER_NORM = "the strategy declares average='sum', and what is clipped is then another norm"
ROUNDINGS = 16  # of the largest element
FINEST = 1e-10  # of the largest element: what float64 shows, where .grad holds what is stepped by
Alike = Callable[[np.ndarray, np.ndarray], bool]
Own = dict[int, np.ndarray]  # the ranks' own gradients of a parameter, as the single process computed them


def compare_in_groups(recording: Recording) -> Findings:
    """Compare every rank's gradients, and the movement of its weights, with its group's mean: in the first step, and
    in all steps where gradients are tagged. Stops after the first wrong step.

    Not claimed where gradients are kept outside ``.grad`` and the update rule is the strategy's own, nor where ranks
    show parts of weights whose place in the whole is unknown.
    """
    if roots := _foreign_roots(recording):
        return Findings(comparisons=len(roots), failures=roots)
    if reason := _not_comparable(recording):
        return Findings(not_claimed=reason)
    if not recording.complete:
        return Findings(blocked="not every rank came to its end in the group that it was given")
    findings, hidden = Findings(blocked=blocked_reference(recording)), False
    for step in range(recording.scenario.num_steps if recording.scenario.tagged else 1) if not findings.blocked else ():
        hidden = _compare_step(recording, step, findings) or hidden
        if findings.failures:
            break
    return Findings(not_claimed=HIDDEN) if hidden and not findings.failures else findings


def _compare_step(recording: Recording, step: int, findings: Findings) -> bool:
    """Compare one step, and add what is wrong to ``findings``; return whether some gradient cannot be seen."""
    contract, clipped_by, hidden = contract_of(recording), _clipped_by(recording), False
    untold = unreached(recording) | equal_on_arrival(recording)
    for name in (name for name in recording.parameter_names if name not in untold):
        own = _own_gradients(recording, name)
        alike = partial(_alike, unit=_unit(recording, name))
        for rank in recording.ranks if own else ():
            findings.comparisons += 1
            due = _together(own, _group(recording, rank), summed=contract.get("average") == "sum")
            due = due * clipped_by.get(rank.rank, 1.0)
            held, stepped = _values(rank, "gradient", step, name), _stepped_by(recording, rank, step, name)
            held = np.zeros_like(due) if held is None and not due.any() else held  # no rank in the group used it
            if stepped is not None and stepped.shape != due.shape:
                hidden = True
            elif stepped is not None:
                rounded = _is_rounded(recording, held, due, alike)
                if rounded or not alike(stepped, due):
                    shown = held if held is not None and (rounded or not alike(held, due)) else stepped
                    findings.failures.append(_failure(recording, rank, step, name, shown, due, own, alike))
            elif held is None or contract.get("sharded") or (not alike(held, due) and alike(held, own[rank.rank])):
                hidden = True
            elif not alike(held, due):
                findings.failures.append(_failure(recording, rank, step, name, held, due, own, alike))
    return hidden


def _own_gradients(recording: Recording, name: str) -> Own:
    """Each rank's own gradient of ``name``: zeros on ranks that did not use it, empty if no rank did."""
    known = {rank: widened(values) for rank, values in local_gradients(recording, 0, name).items()}
    zeros = {rank: np.zeros_like(values) for values in known.values() for rank in range(recording.scenario.world_size)}
    return zeros | known


def _not_comparable(recording: Recording) -> str | None:
    if reason := not_reached(recording) or tagged_too_late(recording):
        return reason
    if contract_of(recording).get("lossy"):
        return HIDDEN
    summed = contract_of(recording).get("average") == "sum"
    return OTHER_NORM if summed and recording.scenario.clip_norm is not None else None


def _foreign_roots(recording: Recording) -> list[Failure]:
    """Failures of ranks that named a root or peer outside their group, usually the job's rank 0: torch raises then."""
    failures = []
    for rank in recording.ranks:
        outcome = rank.outcome or {}
        said = NOT_A_MEMBER.search(str(outcome.get("detail"))) if outcome.get("error") == "own" else None
        if outcome.get("status") != "raised" or said is None:
            continue
        group = listed(_group(recording, rank))
        failures.append(
            Failure(
                scenario=recording.scenario.name,
                rank=rank.rank,
                expected=f"a rank of the group: {group}",
                observed=f"rank {said[1]}",
                cause="root_of_the_job",
                confidence=1.0,
                explanation=f"rank {rank.rank} was given the process group of {group}, and named rank {said[1]}, "
                "which is not in it, as a root or a peer",
                hint="src= and dst= are ranks of the whole job: dist.get_global_rank(group, 0), or group_src=0",
            )
        )
    return failures


def _clipped_by(recording: Recording) -> dict[int, float]:
    """By rank, the factor by which ``clip_grad_norm_()`` scales gradients, from the norm of its group's gradients."""
    limit = recording.scenario.max_norm(0)
    by_rank: dict[int, float] = {}
    if limit is None:
        return by_rank
    for rank in recording.ranks:
        group, squares = _group(recording, rank), 0.0
        for name in recording.parameter_names:
            own = _own_gradients(recording, name)
            squares += float(np.square(_together(own, group, summed=False)).sum()) if own else 0.0
        by_rank[rank.rank] = min(1.0, limit / (math.sqrt(squares) + 1e-6))
    return by_rank


def _group(recording: Recording, rank: RankRecording) -> tuple[int, ...]:
    return members(recording.scenario.world_size, rank.rank)


def _together(own: Own, ranks: tuple[int, ...], *, summed: bool) -> np.ndarray:
    total: np.ndarray = np.sum([own[rank] for rank in ranks], axis=0)
    return total if summed else total / len(ranks)


def _whose(recording: Recording, mine: tuple[int, ...], held: np.ndarray, own: Own, alike: Alike) -> str | None:
    """The ranks of another group whose mean or sum ``held`` is; None if there is no such group."""
    for group in groups(recording.scenario.world_size):
        if group != mine and any(alike(held, _together(own, group, summed=summed)) for summed in (False, True)):
            return ", ".join(map(str, group))
    return None


def _values(rank: RankRecording, what: str, step: int, name: str) -> np.ndarray | None:
    tensor = rank.tensor(what, step, name)
    return None if tensor is None or tensor.values is None else widened(tensor.values)


def _unit(recording: Recording, name: str) -> float | None:
    """The unit roundoff of the dtype of ``name``; None in exact arithmetic and in float64."""
    assert recording.reference is not None
    if is_exact(recording) or is_wide(recording):
        return None
    dtypes = {entry["name"]: entry["dtype"] for entry in recording.reference.notes.get("parameters", [])}
    return UNIT_ROUNDOFF[dtypes[name]]


def _stepped_by(recording: Recording, rank: RankRecording, step: int, name: str) -> np.ndarray | None:
    """The gradient by which the weight moved in ``step``; None if the update rule may not be SGD's, or if the
    dtype is too narrow to show it.
    """
    before, after = (_values(rank, "weight", at, name) for at in (step - 1, step))
    if (_unit(recording, name) or 0) > UNIT_ROUNDOFF["float32"]:
        return None
    if before is None or after is None or before.shape != after.shape:
        return None
    if recording.maybe_own_rule:
        return None
    moved: np.ndarray = (before - after) / recording.scenario.lr
    earlier = None if step == 0 else _values(rank, "weight", step - 2, name)
    if earlier is None:
        return moved if step == 0 else None
    gathered: np.ndarray = (earlier - before) / recording.scenario.lr  # momentum: in the second step the first gradient
    return moved - SGD_MOMENTUM * gathered


def _alike(one: np.ndarray, other: np.ndarray, unit: float | None = None) -> bool:
    """Return whether two gradients are equal up to rounding, by ``unit`` if given; wrong ones are far off."""
    if one.shape != other.shape:
        return False
    if unit is None:  # weights of float32 that a step has moved show a gradient no more exactly
        return np.allclose(one, other, rtol=1e-5, atol=1e-5)
    largest = max(float(np.abs(values).max(initial=0.0)) for values in (one, other))
    return np.allclose(one, other, rtol=0, atol=max(ROUNDINGS * unit, 1e-5) * largest)


def _is_rounded(recording: Recording, held: np.ndarray | None, due: np.ndarray, alike: Alike) -> bool:
    """Return whether a gradient of float64 is right, and went through a narrower dtype. Weights that it moved round,
    too, and show that no more.
    """
    if held is None or not is_wide(recording) or not alike(held, due):
        return False
    return not np.allclose(held, due, rtol=0, atol=FINEST * float(np.abs(due).max(initial=0.0)))


def _along(held: np.ndarray, due: np.ndarray) -> bool:
    """Return whether ``held`` is a positive multiple of ``due``."""
    if held.shape != due.shape or not due.any():
        return False
    factor = float((held * due).sum() / np.square(due).sum())
    return factor > 0 and _alike(held, due * factor)


def _failure(
    recording: Recording,
    rank: RankRecording,
    step: int,
    name: str,
    held: np.ndarray,
    due: np.ndarray,
    own: Own,
    alike: Alike,
) -> Failure:
    cause, confidence, is_wrong, hint = _explain(recording, rank, held, due, own, alike)
    at = int(np.argmax(np.abs(held - due))) if held.shape == due.shape else 0
    group = listed(_group(recording, rank))
    return Failure(
        scenario=recording.scenario.name,
        step=step,
        rank=rank.rank,
        parameter=name,
        index=[int(i) for i in np.unravel_index(at, due.shape)],
        expected=repr(due.flat[at].item()),
        observed=repr(held.flat[at].item()) if held.size else "nothing",
        cause=cause,
        confidence=confidence,
        explanation=f"rank {rank.rank} was given the process group of {group}, and its gradient of {name}{is_wrong}",
        hint=hint,
    )


def _explain(
    recording: Recording, rank: RankRecording, held: np.ndarray, due: np.ndarray, own: Own, alike: Alike
) -> tuple[str | None, float, str, str]:
    """The cause, its confidence, how the gradient is wrong, and what helps."""
    group, everybody = _group(recording, rank), tuple(range(recording.scenario.world_size))
    hint = "name the group wherever torch is asked for a rank, a world size, a root or a collective"
    cause, confidence, is_wrong = None, 0.0, " is not the mean over that group"
    if any(alike(held, _together(own, everybody, summed=summed)) for summed in (False, True)):
        cause, confidence, is_wrong = "reduced_over_the_job", 1.0, " is that of all ranks"
        hint = "hand the group to every collective"
    elif alike(held * len(everybody), due * len(group)):
        cause, confidence = "divided_by_the_job", 0.95
        is_wrong, hint = f" is divided by {len(everybody)}, the number of all ranks", "divide by get_world_size(group)"
    elif other := _whose(recording, group, held, own, alike):
        cause, confidence = "another_groups", 1.0
        is_wrong = f", or what its weight was stepped by, is that of ranks {other}"
        hint = "take owners from the group (get_rank(group), get_world_size(group)), and hand it to every collective"
    elif recording.scenario.clip_norm is not None and _along(held, due):
        cause, confidence = "clipped_otherwise", 0.8  # another wrong gradient changes the norm as well
        is_wrong = " is clipped by another norm than that of the group's gradients"
        hint = "the norm of replicated gradients needs no collective; that of parts is added up over the group alone"
    elif alike(held, due):
        cause, confidence = "rounded_on_the_wire", 0.9
        is_wrong = " is right but for a rounding that float64 does not make"
        hint = "reduce each gradient in its own dtype, in every group"
    return cause, confidence, is_wrong, hint

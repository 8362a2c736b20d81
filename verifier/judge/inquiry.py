"""From a difference to a failure: gathers the evidence around a wrong gradient, and asks for the cause.

Special here: all evidence is looked up in the recording, and nothing is computed again. Pure.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.comparison import Difference
from verifier.judge.diagnosis import diagnose
from verifier.judge.evidence import Cause, GradientEvidence
from verifier.judge.narrowing import rounded
from verifier.judge.packing import elsewhere, partners
from verifier.lines import NOT_CALLED, OTHER_INPUTS, UNTIED
from verifier.recording import RankRecording, Recording
from verifier.verdict import Failure

AFTER_FORWARD = ("backward", "before_step", "step")  # phases of a step


def local_gradients(recording: Recording, step: int, name: str, what: str = "local_gradient") -> dict[int, np.ndarray]:
    """Each rank's own gradient before synchronisation, as the single process computed it.

    It is recorded in the first step only; tagged gradients are the same in every step. ``what``: ``local_gradient`` for
    all its micro-batches, ``first_gradient`` or ``last_gradient`` for one of them.
    """
    assert recording.reference is not None
    ranks = range(recording.scenario.world_size)
    step = 0 if recording.scenario.tagged else step
    found = {rank: recording.reference.tensor(f"{what}_{rank}", step, name) for rank in ranks}
    return {rank: t.values for rank, t in found.items() if t is not None and t.values is not None}


def wrong_gradient(
    recording: Recording,
    rank: RankRecording,
    step: int,
    name: str,
    observed: np.ndarray,
    expected: np.ndarray,
    difference: Difference,
    *,
    before_step: bool = False,
) -> Failure:
    """The failure for a gradient that is not the single process's: where it is, and its cause if a pattern fits.

    ``before_step``: ``observed`` is not the gradient recorded last, but the one before ``step()`` changed it.
    """
    scenario = recording.scenario
    evidence = GradientEvidence(
        observed=observed,
        expected=expected,
        world_size=scenario.world_size,
        num_micro_batches=scenario.num_micro_batches,
        poisoned=scenario.poison,
        rank=rank.rank,
        on_gpu=scenario.device == "cuda",
        clipped=scenario.clip_norm is not None,
        written_in_flight=any(c.written_in_flight for c in rank.collectives if c.step == step),
        local=local_gradients(recording, step, name),
        first=local_gradients(recording, step, name, "first_gradient"),
        last=local_gradients(recording, step, name, "last_gradient"),
        dropped=step in (scenario.drop_before, scenario.drop_quiet_before),
        previous=_values(rank, "gradient", step - 1, name),
        weight=_values(rank, "weight", step - 1, name),
        neighbours=_neighbours(recording, step, name, expected.shape),
        contains=_contents(recording, rank.rank, step, name, difference),
        elsewhere=elsewhere(recording, name, observed),
        inputs=_inputs(recording),
        passed_by=all(other.notes.get(NOT_CALLED) for other in recording.ranks),
        reduced_to=_reduced_to(rank, step),
        untied=(rank.notes.get(UNTIED) or {}).get(name),
        held=_held(recording, step, name),
        agreed=not before_step and _agreed(recording, step, name),
    )
    return _failure(rank.rank, diagnose(evidence), scenario.name, step, name, difference)


def rounded_gradient(
    recording: Recording, rank: RankRecording, step: int, name: str, dtype: str, difference: Difference
) -> Failure:
    """The failure for a gradient that is within its bound, but holds only numbers of ``dtype``."""
    return _failure(rank.rank, rounded(dtype), recording.scenario.name, step, name, difference)


def _failure(rank: int, cause: Cause | None, scenario: str, step: int, name: str, difference: Difference) -> Failure:
    return Failure(
        scenario=scenario,
        step=step,
        rank=rank,
        parameter=name,
        index=list(difference.index),
        expected=repr(difference.expected),
        observed=repr(difference.observed),
        cause=cause.name if cause else None,
        confidence=cause.confidence if cause else 0.0,
        explanation=cause.explanation if cause else "the gradient is not that of the large batch; no pattern fits",
        hint=cause.hint if cause else None,
    )


def _neighbours(recording: Recording, step: int, name: str, shape: tuple[int, ...]) -> dict[str, dict[int, np.ndarray]]:
    """The local gradients of other parameters of this shape, if some rank has none of ``name``; else empty."""
    if len([g for g in local_gradients(recording, step, name).values() if g.any()]) == recording.scenario.world_size:
        return {}
    found = {other: local_gradients(recording, step, other) for other in recording.parameter_names if other != name}
    return {other: local for other, local in found.items() if all(g.shape == shape for g in local.values())}


def _inputs(recording: Recording) -> dict[int, str]:
    """By rank, whose inputs its model got if not its own. Empty for tagged gradients, which no input changes."""
    if recording.scenario.tagged:
        return {}
    return {rank.rank: rank.notes[OTHER_INPUTS] for rank in recording.ranks if OTHER_INPUTS in rank.notes}


def _reduced_to(rank: RankRecording, step: int) -> int | None:
    """The one other rank to which this rank reduces everything in ``step``, integers aside; None if there is none."""
    issued = [c for c in rank.collectives if c.step == step and c.phase in AFTER_FORWARD and "int" not in c.dtype]
    roots = {c.root if c.op == "reduce_" else None for c in issued}
    return roots.pop() if len(roots) == 1 and rank.rank not in roots else None


def _held(recording: Recording, step: int, name: str) -> dict[int, np.ndarray]:
    """The gradient that each rank's optimizer finds, in steps after the first; empty in the first step."""
    found = {} if step == 0 else {rank.rank: _values(rank, "gradient", step, name) for rank in recording.ranks}
    return {rank: values for rank, values in found.items() if values is not None}


def _agreed(recording: Recording, step: int, name: str) -> bool:
    """Return whether all ranks hold the same gradient, bit for bit."""
    held = [rank.tensor("gradient", step, name) for rank in recording.ranks]
    return len(held) > 1 and None not in held and len({tensor.digest for tensor in held if tensor is not None}) == 1


def _values(rank: RankRecording, what: str, step: int, name: str) -> np.ndarray | None:
    tensor = rank.tensor(what, step, name)
    return tensor.values if tensor is not None else None


def _contents(recording: Recording, rank: int, step: int, name: str, difference: Difference) -> str | None:
    if not recording.scenario.tagged:
        return None
    shape = next(e["shape"] for e in recording.ranks[rank].notes["parameters"] if e["name"] == name)
    if len(difference.index) != len(shape):  # the observed gradient has another shape
        return None
    element = int(np.ravel_multi_index(difference.index, shape)) if shape else 0
    return partners(recording, rank, step, name, element)

"""Gradients against the single process: what several checks share. Pure functions on recordings.

Special here is where the expectation comes from. In exact arithmetic and in float64 it is the single process's gradient
of the large batch. In float32, bfloat16 and complex64 that would be blurred by how a matrix product of another size
rounds; there it is the mean of the ranks' own gradients, as the single process computed each of them on the same
micro-batch, and what is left is the rounding of W terms and their mean, element by element. That is known for the first
step; after it float32 is held to the large batch, to a thousandth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from verifier import uncalled
from verifier.check import Findings
from verifier.comparison import bound_exact, bound_float64, bound_lossy, bound_of_mean, compare
from verifier.inquiry import local_gradients, wrong_gradient
from verifier.inside_step import CHANGED_INSIDE, before_its_own_step, weights_tell
from verifier.late_tags import tagged_too_late
from verifier.norms import is_right
from verifier.presence import trained_though_frozen, wrong_presence
from verifier.recording import RankRecording, Recording, Tensor
from verifier.verdict import Failure

EXACT = "exact"
WIDE = ("float64", "complex128")
SINGLE = ("float32", "complex64")
SINGLE_BOUND = 1e-3  # of a tensor's largest element: a few steps of roundings come to 1e-5, mistakes to their own size
LOSSY_DRIFT = 0.25  # of the largest element: what a few steps of declared roundings may add up to, generously


@dataclass(frozen=True)
class Expected:
    """The gradient that a single process has, and how far from it an honest strategy may be (absolute)."""

    values: np.ndarray
    bound: np.ndarray | float


def contract_of(recording: Recording) -> dict[str, Any]:
    contract: dict[str, Any] = recording.ranks[0].notes.get("contract", {})
    return contract


def blocked_reference(recording: Recording) -> str | None:
    if recording.reference is None or not recording.reference.completed:
        return "the single-process reference did not come to its end, which is our fault"
    return None


def not_comparable(recording: Recording) -> str | None:
    """Why gradients cannot be compared with the single process's; None: they can."""
    if recording.scenario.tagged and not all(r.notes.get("tags_fired", True) for r in recording.ranks):
        return "the strategy trains copies of the parameters, which tags do not reach"
    if reason := tagged_too_late(recording):
        return reason
    lossy = contract_of(recording).get("lossy")
    if lossy and recording.scenario.tagged:
        return f"the strategy declares lossy={lossy!r}, and tags do not survive rounding"
    if contract_of(recording).get("average") == "sum" and recording.scenario.clip_norm is not None:
        return "the strategy declares average='sum', and what is clipped is then another norm"
    if not (is_exact(recording) or is_wide(recording)) and _loss_was_rounded(recording):
        return (
            "the strategy multiplies the loss by what is no power of two; in narrow dtypes the whole backward is then "
            "rounded elsewhere than the single process's"
        )
    return None


def compare_gradients(recording: Recording) -> Findings:
    """Every rank's gradient of every parameter, just before the optimizer steps, against the single process's.

    Stops after the first step in which something is wrong: later steps are consequences. Several checks ask; the work
    is done once for a recording.
    """
    if recording not in _compared:
        _compared[recording] = _compare_gradients(recording)
    found = _compared[recording]
    return replace(found, failures=[failure.model_copy() for failure in found.failures])


_compared: WeakKeyDictionary[Recording, Findings] = WeakKeyDictionary()


def _compare_gradients(recording: Recording) -> Findings:
    findings = Findings(blocked=blocked_reference(recording))
    if findings.blocked:
        return findings
    if reason := not_comparable(recording):
        findings.not_claimed = reason
        return findings
    for step in range(_num_steps(recording)):
        failures = [
            failure
            for name in (*recording.parameter_names, *_unfrozen(recording, step))
            for rank in recording.ranks
            for failure in _compare(recording, rank, step, name, findings)
        ]
        findings.failures += failures
        if failures:
            _temper(recording, step, failures)
            uncalled.temper(recording, step, failures)
            break
    return findings


def _unfrozen(recording: Recording, step: int) -> list[str]:
    """Frozen parameters of which some rank's optimizer has found a gradient all the same."""
    names = recording.frozen_names
    return [name for name in names if any(rank.tensor("gradient", step, name) is not None for rank in recording.ranks)]


def _temper(recording: Recording, step: int, failures: list[Failure]) -> None:
    """Where some parameters were averaged and others not, "summed" says what is seen, and no longer why."""
    assert recording.reference is not None
    if contract_of(recording).get("average") == "sum":
        for failure in failures:
            if failure.cause == "averaged_twice":
                failure.explanation += "; the strategy declares average='sum', and this is the mean"
                failure.hint = "hand out the sum, or declare Contract(average='mean')"
    gradients = recording.reference.named("gradient", step)
    used = {name for name, tensor in gradients.items() if tensor.values is not None and tensor.values.any()}
    if used <= {failure.parameter for failure in failures}:
        return
    for failure in failures:
        if failure.cause == "missing_average":
            failure.confidence = min(failure.confidence, 0.8)
            failure.explanation += "; other parameters are averaged, so this one may have been reduced more than once"
            failure.hint = "reduce and divide every parameter once: tied ones, those of the last bucket"


def own_steps(recording: Recording) -> str | None:
    """Why the strategy's steps are not a single process's, and rightly; None: they have to be the same."""
    if contract_of(recording).get("average") == "sum":
        return "the strategy declares average='sum': its steps are longer than a single process's"
    if own := recording.ranks[0].notes.get("own_optimizer"):
        return f"the update rule is the strategy's own ({own})"
    return None


def is_lossy(recording: Recording) -> bool:
    return bool(contract_of(recording).get("lossy"))


def _num_steps(recording: Recording) -> int:
    """Steps that are compared: after one that was longer than a single process's, weights are others, and rightly."""
    kept = min(recording.scenario.num_steps, recording.scenario.keep_steps)
    return min(kept, 1) if own_steps(recording) or may_turn_over(recording) or has_norms(recording) else kept


def may_turn_over(recording: Recording) -> bool:
    """May a declared rounding, once it is in the weights, become as large as a mistake? Whole numbers often meet a relu
    at exactly 0, and a hair's breadth decides there whether a gradient passes. Smooth models judge such a strategy.
    """
    return is_lossy(recording) and is_exact(recording)


def _compare(recording: Recording, rank: RankRecording, step: int, name: str, findings: Findings) -> list[Failure]:
    assert recording.reference is not None
    expected, observed = recording.reference.tensor("gradient", step, name), rank.tensor("gradient", step, name)
    if observed is None or expected is None:
        return _compare_presence(recording, rank, step, name, findings)
    if observed.values is None or expected.values is None:
        findings.blocked = f"the contents of {name} were not kept"
        return []
    wanted = expect(recording, step, name, expected)
    if wanted is None:
        return []
    findings.comparisons += 1
    if _is_right(recording, step, name, observed.values, wanted, findings):
        return []
    earlier = before_its_own_step(recording, rank, step, name)
    if earlier is not None and _is_right(recording, step, name, earlier, wanted, findings):
        if not weights_tell(recording, strictly=is_exact(recording) or is_wide(recording)):
            findings.blocked = CHANGED_INSIDE
        return []
    difference = compare(observed.values, wanted.values, wanted.bound)
    findings.note_margin(difference.margin)
    return [wrong_gradient(recording, rank, step, name, observed.values, wanted.values, difference)]


def _is_right(
    recording: Recording, step: int, name: str, values: np.ndarray, wanted: Expected, findings: Findings
) -> bool:
    difference = compare(values, wanted.values, wanted.bound)
    if difference.equal:
        findings.note_margin(difference.margin)
        return True
    return has_norms(recording) and is_right(recording, step, name, values, wanted.values)


def _compare_presence(
    recording: Recording, rank: RankRecording, step: int, name: str, findings: Findings
) -> list[Failure]:
    """One of the two has no gradient. A gradient of zeros in its place is the same number: LS202 sees what it does."""
    assert recording.reference is not None
    expected, observed = recording.reference.tensor("gradient", step, name), rank.tensor("gradient", step, name)
    if not rank.completed and ("weight", step, name) not in rank.tensors:
        findings.blocked = f"rank {rank.rank} did not come to the end of step {step}"
        return []
    if observed is expected:  # both None: no gradient here, none there
        return []
    present = observed or expected
    assert present is not None
    if present.values is not None and not np.count_nonzero(present.values):
        findings.comparisons += 1
        return []
    if observed is None and contract_of(recording).get("sharded"):  # its owner has it: LS202 judges the weights
        return []
    findings.comparisons += 1
    if name in recording.frozen_names:
        return [trained_though_frozen(recording, rank.rank, step, name)]
    return [wrong_presence(recording, rank.rank, step, name, expected)]


def expect(recording: Recording, step: int, name: str, reference: Tensor) -> Expected | None:
    """What rank gradients of ``name`` are held to; None where no bound is known (bfloat16 after the first step)."""
    assert reference.values is not None
    world_size = recording.scenario.world_size
    scale = world_size if contract_of(recording).get("average") == "sum" else 1
    magnitude = _magnitude(recording, step, name) * scale
    values: np.ndarray = reference.values * scale
    bound: np.ndarray | float
    if is_exact(recording):
        bound = bound_exact(float(magnitude.max(initial=0.0)), world_size, reference.dtype)
    elif is_wide(recording):
        bound = bound_float64(values)
    elif step > 0 and is_single(recording):
        bound = SINGLE_BOUND * float(np.abs(values).max(initial=0.0))
    else:
        local = list(local_gradients(recording, step, name).values())
        if len(local) < world_size:
            return None
        wide = np.complex128 if reference.values.dtype.kind == "c" else np.float64
        values = np.mean([g.astype(wide) for g in local], axis=0) * scale
        bound = bound_of_mean(magnitude, world_size, reference.dtype)
    if lossy := contract_of(recording).get("lossy"):
        largest = float(magnitude.max(initial=0.0))
        if recording.scenario.clip_norm is not None:  # what is rounded, and the norm by which it is then clipped
            largest *= 2 * _clipped_by(recording, step, name, values)
        bound = bound + bound_lossy(largest, world_size, lossy)
        if step > 0:  # roundings have moved the weights meanwhile; what a mistake does is larger
            bound = bound + LOSSY_DRIFT * float(np.abs(values).max(initial=0.0))
    return Expected(values, bound)


def _loss_was_rounded(recording: Recording) -> bool:
    """Has the strategy multiplied the loss by something that is no power of two, such as 1/3?"""
    scales = (rank.notes.get("loss_scale", 1.0) for rank in recording.ranks)
    return any(math.frexp(scale)[0] not in (0.5, 0.0) for scale in scales)


def _clipped_by(recording: Recording, step: int, name: str, clipped: np.ndarray) -> float:
    """The factor, at most 1, by which clipping has shortened this gradient in the single process."""
    local = list(local_gradients(recording, step, name).values())
    before = float(np.linalg.norm(np.mean(local, axis=0))) if local else 0.0
    return min(float(np.linalg.norm(clipped)) / before, 1.0) if before else 1.0


def is_wide(recording: Recording) -> bool:
    """Is the whole model in float64? One narrow layer blurs the gradients of all layers before it."""
    return _dtypes(recording) <= {*WIDE}


def _dtypes(recording: Recording) -> set[str]:
    assert recording.reference is not None
    return {entry["dtype"] for entry in recording.reference.notes.get("parameters", [])}


def is_single(recording: Recording) -> bool:
    """Are roundings of float32 all that makes later steps differ from the single process's, so that SINGLE_BOUND holds?

    Not under autocast, nor where something else is declared or done: a lossy wire, sums, a rule of the strategy's own.
    """
    dtypes = _dtypes(recording)
    if is_exact(recording) or recording.scenario.autocast or not dtypes <= {*SINGLE, *WIDE} or dtypes <= {*WIDE}:
        return False
    if is_lossy(recording) or contract_of(recording).get("average") == "sum" or has_norms(recording):
        return False
    return {"own_optimizer", "own_rule"}.isdisjoint(recording.ranks[0].notes)


def is_narrow(recording: Recording) -> bool:
    """Is it known, roughly, where SGD's first step takes weights of which some are in bfloat16 or float16?"""
    scenario = recording.scenario
    if is_exact(recording) or is_wide(recording) or _dtypes(recording) <= {*SINGLE, *WIDE} or scenario.tagged:
        return False
    if is_lossy(recording) or contract_of(recording).get("average") == "sum" or scenario.optimizer != "sgd":
        return False
    return not scenario.autocast and {"own_optimizer", "own_rule"}.isdisjoint(recording.ranks[0].notes)


def has_norms(recording: Recording) -> bool:
    """Does the model normalise over the samples that a rank has, so that the large batch's gradient is another one?"""
    return recording.scenario.workload == "buffers"


def is_exact(recording: Recording) -> bool:
    assert recording.reference is not None
    return recording.reference.notes.get("arithmetic") == EXACT


def _magnitude(recording: Recording, step: int, name: str) -> np.ndarray:
    """Element by element, the mean over ranks of the absolute local gradients."""
    local = [np.abs(g).astype(np.float64) for g in local_gradients(recording, step, name).values()]
    return np.sum(local, axis=0) / recording.scenario.world_size if local else np.zeros(())

"""From a wrong gradient to a cause: patterns of observed against expected values, each with a stable name.

Special here: a cause is named only if the *whole tensor* fits its pattern, and confidence is lower where another cause
could look the same. If nothing fits, the cause is None: no name is better than a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from verifier.judge import over_time
from verifier.judge.cleared import cleared
from verifier.judge.elements_left_out import elements_left_out
from verifier.judge.evidence import FEWEST_ELEMENTS, Cause, GradientEvidence, close
from verifier.judge.in_part import in_part
from verifier.judge.low_rank import low_rank
from verifier.judge.misplaced import misplaced
from verifier.judge.narrowing import another_dtype, rounded, rounded_to
from verifier.judge.on_a_grid import on_a_grid
from verifier.judge.other_inputs import other_inputs, passed_by
from verifier.judge.shares import rescaled, unequal_shares
from verifier.judge.unsynchronised import not_one_another, own_multiple, own_value, reduced_to_another
from verifier.judge.untied import untied
from verifier.judge.weights_added import weights_added
from verifier.marker import holds_poison

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here

# Consequences, not reasons. One is reported first only if nothing explains it; more informative ones come first.
CONSEQUENCES = (
    "buffers_diverged",
    "update_differs",
    "resumed_differently",
    "unfinished_work",
    "optimizer_state_diverged",
    "replicas_diverged",
)
Pattern = Callable[[GradientEvidence], Cause | None]
WASTE = ("reduced_too_much", "reduced_twice")  # the first is never the reason for a wrong number
ROUNDINGS = 16  # of the largest element
ROUNDED = 2.0**-6  # of the largest element: what is right may have been rounded to bfloat16 on the wire
SEEN_ONLY = 0.5  # the confidence in a consequence: it is certainly there, but may not be the reason


def diagnose(evidence: GradientEvidence) -> Cause | None:
    """The first cause whose pattern fits the whole tensor; None if none fits, or if the shape is wrong."""
    if evidence.observed.shape != evidence.expected.shape:
        return None
    with np.errstate(all="ignore"):  # NaN and infinity are common here
        return next((cause for pattern in _PATTERNS if (cause := _fitted(pattern, evidence)) is not None), None)


def _fitted(pattern: Pattern, evidence: GradientEvidence) -> Cause | None:
    """The pattern's cause; None also if the pattern raises on these numbers, which are known to be wrong without it."""
    try:
        return pattern(evidence)
    except (ArithmeticError, ValueError, TypeError):  # numpy's LinAlgError and shape mismatches are ValueErrors
        return None


def _early_read(e: GradientEvidence) -> Cause | None:
    if not e.poisoned or not holds_poison(e.observed):
        return None
    return Cause(
        "read_before_wait",
        1.0,
        "the gradient holds the marker that fills a tensor while its collective is in flight: it was read, or copied, "
        "before the collective was waited for",
        "call work.wait() before reading, averaging or copying what the collective works on",
    )


def _not_finite(e: GradientEvidence) -> Cause | None:
    if np.isfinite(e.observed).all() or not np.isfinite(e.expected).all():
        return None
    if e.on_gpu and e.poisoned:  # a GPU's arithmetic turns every NaN into the same one
        return Cause(
            "not_finite",
            0.6,
            "the gradient holds NaN or infinity where the single process has numbers: it was calculated, perhaps, from "
            "what was still in flight, which a GPU's numbers do not tell; or something overflowed",
            "wait for a collective before calculating with its result; reduce in a dtype that holds the sum",
        )
    return Cause(
        "not_finite",
        0.9,
        "the gradient holds NaN or infinity where the single process has numbers: something overflowed, in a narrower "
        "dtype perhaps, or was read before it was written",
        "reduce in a dtype that holds the sum, or divide before the reduction",
    )


def _rounded(e: GradientEvidence) -> Cause | None:
    """The cause if the error is no more than rounding to a narrower dtype on the wire, and so no other compression."""
    if len(e.local) < e.world_size or e.clipped or (dtype := rounded_to(e.observed, e.expected, e.local)) is None:
        return None
    return rounded(dtype)


def _written_in_flight(e: GradientEvidence) -> Cause | None:
    if not e.written_in_flight:
        return None
    return Cause(
        "written_in_flight",
        0.7,  # it may have been another tensor
        "in this step a tensor was written to between the start of its collective and the wait for it, and such a "
        "write is lost",
        "call work.wait() before scaling, clipping or zeroing what the collective works on",
    )


def _sure_of_ranks(e: GradientEvidence) -> float:
    """The confidence that a factor of W is the world size: there may be W micro-batches, and 2 has many reasons."""
    if e.world_size == e.num_micro_batches:
        return 0.6
    return 1.0 if e.world_size > 2 else 0.8


def _missing_average(e: GradientEvidence) -> Cause | None:
    if e.world_size == 1 or not close(e.observed, e.expected * e.world_size):
        return None
    return Cause(
        "missing_average",
        _sure_of_ranks(e),
        f"every element is {e.world_size} times what it should be, and there are {e.world_size} ranks: "
        "gradients were summed and not averaged",
        "divide by the world size after the all-reduce, or use ReduceOp.AVG; if the sum is meant, declare it: "
        "Contract(average='sum')",
    )


def _averaged_twice(e: GradientEvidence) -> Cause | None:
    if e.world_size == 1 or not close(e.observed * e.world_size, e.expected):
        return None
    return Cause(
        "averaged_twice",
        _sure_of_ranks(e),
        f"every element is 1/{e.world_size} of what it should be, and there are {e.world_size} ranks",
        "divide by the world size once: in the loss, before the all-reduce or after it",
    )


def _another_ranks_value(e: GradientEvidence) -> Cause | None:
    for rank, local in e.local.items():
        if (rank != e.rank or e.agreed) and close(e.observed, local):
            return Cause(
                "one_ranks_gradient",
                0.95,
                f"every element is rank {rank}'s local gradient: gradients were copied from it, not averaged",
                "use all_reduce, not broadcast, for gradients",
            )
    return None


def _partly_averaged(e: GradientEvidence) -> Cause | None:
    """The cause if every element is the sum of only some ranks' gradients, divided by their number or by W."""
    smallest = 1 if e.agreed else 2  # if ranks differ, a single rank's share is its own gradient, never reduced
    if e.world_size < smallest + 1 or len(e.local) < e.world_size:
        return None
    ranks = sorted(e.local)
    for size in range(smallest, e.world_size):
        for group in combinations(ranks, size):
            total = np.sum([e.local[r] for r in group], axis=0)
            for divisor in (size, e.world_size):
                if close(e.observed * divisor, total):
                    return Cause(
                        "some_ranks_only",
                        0.9 if size > 1 else 0.7,  # a small tensor looks the same if the other ranks sent nothing
                        f"every element is the sum over ranks {', '.join(map(str, group))} alone, divided by {divisor}",
                        "reduce over the group of all ranks that train this parameter",
                    )
        if size > 3:  # the number of groups explodes, and a mistake rarely leaves out half of a large group
            break
    return None


def _the_parameter(e: GradientEvidence) -> Cause | None:
    if e.weight is None or not e.expected.any():  # where nothing is right, it may have been added to that
        return None
    if not any(close(e.observed, e.weight * factor) for factor in (1, e.world_size)):
        return None
    return Cause(
        "gradient_is_the_parameter",
        0.95,
        "the gradient is the parameter itself, as it was before the step: what was reduced is not its .grad",
        "a post-accumulate-grad hook is handed the parameter: reduce parameter.grad",
    )


def _imaginary_part_lost(e: GradientEvidence) -> Cause | None:
    if not np.iscomplexobj(e.expected) or not np.iscomplexobj(e.observed) or close(e.observed, e.expected):
        return None
    nearly = bool((np.abs(e.observed.real - e.expected.real) <= ROUNDED * np.abs(e.expected).max(initial=0.0)).all())
    if not close(e.observed.real, e.expected.real) and (e.observed.imag.any() or not nearly):
        return None
    return Cause(
        "imaginary_part_lost",
        0.95,
        "the real part is right, and the imaginary part is not: only half of a complex gradient was synchronised",
        "reduce torch.view_as_real(gradient), or the complex tensor itself where the backend takes it",
    )


def _mixed_with(e: GradientEvidence) -> str | None:
    """The gradients that were added up, if ranks without this one sent another's: collectives match by order."""
    mine = {rank: gradient for rank, gradient in e.local.items() if gradient.any()}
    if not 0 < len(mine) < e.world_size:
        return None
    for name, theirs in e.neighbours.items():
        others = {rank: theirs[rank] for rank in range(e.world_size) if rank not in mine and rank in theirs}
        together = [*mine.values(), *others.values()]
        complete = len(together) == e.world_size and any(gradient.any() for gradient in others.values())
        if complete and close(e.observed * e.world_size, np.sum(together, axis=0)):
            return f"rank {', '.join(map(str, mine))}'s own and rank {', '.join(map(str, others))}'s {name}"
    return None


def _another_parameter(e: GradientEvidence) -> Cause | None:
    contains = e.contains or _mixed_with(e)
    if contains is None:
        return None
    return Cause(
        "another_parameters_gradient",
        1.0 if e.contains else 0.95 if e.observed.size >= FEWEST_ELEMENTS else 0.6,
        f"different parameters were added up: {contains}",
        "decide before the backward, on every rank alike, which gradients share a bucket and in which order, never by "
        "arrival; a rank without a gradient of a parameter sends zeros in its place, and does not leave it out",
    )


def _rounded_otherwise(e: GradientEvidence) -> Cause | None:
    largest = float(np.abs(e.expected).max(initial=0.0))
    if e.observed.dtype.kind not in "fc" or not largest:
        return None
    bound = ROUNDINGS * float(np.finfo(e.observed.dtype).eps) * largest
    if not np.abs(e.observed - e.expected).max(initial=0.0) <= bound:
        return None
    return Cause(
        "rounded_otherwise",
        0.6,
        "off by no more than roundings of its own dtype, but in few places, or by as much as tags differ",
        "if this is a factor's rounding, multiply by a power of two, or declare Contract(lossy='float32')",
    )


_PATTERNS: tuple[Pattern, ...] = (
    _early_read,
    _written_in_flight,
    reduced_to_another,
    own_value,
    not_one_another,
    untied,
    over_time.dropped_counts,
    _missing_average,
    _averaged_twice,
    over_time.accumulation_scale,
    over_time.last_micro_batch_only,
    over_time.first_micro_batch_only,
    _another_ranks_value,
    over_time.stale,
    over_time.not_cleared,
    _partly_averaged,
    other_inputs,
    _another_parameter,
    _the_parameter,
    misplaced,
    _imaginary_part_lost,
    rescaled,
    weights_added,
    another_dtype,
    _rounded_otherwise,
    _rounded,
    own_multiple,
    unequal_shares,
    over_time.unequal_micro_batches,
    cleared,
    in_part,
    elements_left_out,
    on_a_grid,
    low_rank,
    _not_finite,
    passed_by,
)

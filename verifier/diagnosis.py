"""From a wrong number to a cause: patterns of observed against expected, each with a name that stays.

Special here: a cause is only named when the *whole tensor* fits its pattern, and confidence is lowered where another
cause could look the same. When nothing fits, the cause is None: better no name than a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from verifier.marker import holds_poison
from verifier.narrowing import rounded_to

# What is seen and not why: told first only where nothing explains it, the more telling ones before the others.
CONSEQUENCES = (
    "buffers_diverged",
    "update_differs",
    "resumed_differently",
    "unfinished_work",
    "optimizer_state_diverged",
    "replicas_diverged",
)
SEEN_ONLY = 0.5  # the confidence in a consequence: that it is there is certain, that it is the reason is not


@dataclass(frozen=True)
class Cause:
    name: str
    confidence: float
    explanation: str
    hint: str


@dataclass(frozen=True)
class GradientEvidence:
    """A wrong gradient and what is known around it. Arrays have the parameter's shape."""

    observed: np.ndarray
    expected: np.ndarray
    world_size: int
    num_micro_batches: int
    poisoned: bool
    rank: int
    local: Mapping[int, np.ndarray]  # each rank's own gradient before synchronisation, where known
    written_in_flight: bool = False  # some tensor of this step was written to while its collective was in flight
    clipped: bool = False  # the gradient was clipped before it was looked at
    last: Mapping[int, np.ndarray] = field(default_factory=dict)  # the share of each rank's last micro-batch in it
    previous: np.ndarray | None = None  # what this rank's optimizer saw in the step before
    neighbours: Mapping[str, Mapping[int, np.ndarray]] = field(default_factory=dict)  # others of this shape: as local
    elsewhere: Mapping[int, np.ndarray] = field(default_factory=dict)  # what the other ranks hold of it
    contains: str | None = None  # tagged gradients: what the observed values decode to


def diagnose(evidence: GradientEvidence) -> Cause | None:
    """The first cause whose pattern fits the whole tensor."""
    with np.errstate(all="ignore"):  # of NaN and infinity there are enough here
        return next((cause for pattern in _PATTERNS if (cause := pattern(evidence)) is not None), None)


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal but for rounding in the dtype in which ``a`` was computed. Two tensors of zeros are not evidence."""
    if a.shape != b.shape or not b.any():
        return False
    relative = {"float32": 1e-5, "complex64": 1e-5, "float16": 1e-2}.get(str(a.dtype), 1e-9)
    scale = float(np.abs(b).max())
    return bool(np.all(np.isfinite(a)) and np.all(np.abs(a - b) <= relative * scale))


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
    return Cause(
        "not_finite",
        0.9,
        "the gradient holds NaN or infinity where the single process has numbers: something overflowed, in a narrower "
        "dtype perhaps, or was read before it was written",
        "reduce in a dtype that holds the sum, or divide before the reduction",
    )


def _last_micro_batch_only(e: GradientEvidence) -> Cause | None:
    if e.num_micro_batches < 2 or len(e.last) < e.world_size:
        return None
    mean = np.mean(list(e.last.values()), axis=0)
    for factor in (1, e.num_micro_batches):
        if _close(e.observed, mean * factor) or _close(e.observed, e.last[e.rank] * factor):
            return Cause(
                "last_micro_batch_only",
                0.95,
                f"the gradient is that of the last of {e.num_micro_batches} micro-batches alone: what had accumulated "
                "before it is lost",
                "reduce what has accumulated in .grad, not the gradient that a hook is handed",
            )
    return None


def _rounded(e: GradientEvidence) -> Cause | None:
    """Off by no more than roundings to a narrower dtype on the wire: not undeclared compression, but rounding."""
    if len(e.local) < e.world_size or e.clipped or (dtype := rounded_to(e.observed, e.expected, e.local)) is None:
        return None
    return Cause(
        "rounded_on_the_wire",
        0.9,
        f"the gradient is right but for roundings to {dtype}, which the strategy does not declare",
        f"reduce in the gradient's own dtype; or, if that loss is meant, declare it: Contract(lossy={dtype!r})",
    )


def _written_in_flight(e: GradientEvidence) -> Cause | None:
    if not e.written_in_flight:
        return None
    return Cause(
        "written_in_flight",
        0.9,
        "a tensor was written to between the start of its collective and the wait for it, and the write was lost",
        "call work.wait() before scaling, clipping or zeroing what the collective works on",
    )


def _sure_of_ranks(e: GradientEvidence) -> float:
    """How sure a factor of W is the number of ranks: micro-batches may be as many, and many things are twice there."""
    if e.world_size == e.num_micro_batches:
        return 0.6
    return 1.0 if e.world_size > 2 else 0.8


def _missing_average(e: GradientEvidence) -> Cause | None:
    if e.world_size == 1 or not _close(e.observed, e.expected * e.world_size):
        return None
    return Cause(
        "missing_average",
        _sure_of_ranks(e),
        f"every element is {e.world_size} times what it should be, and there are {e.world_size} ranks: "
        "gradients were summed and not averaged",
        "divide by the world size after the all-reduce, or use ReduceOp.AVG",
    )


def _averaged_twice(e: GradientEvidence) -> Cause | None:
    if e.world_size == 1 or not _close(e.observed * e.world_size, e.expected):
        return None
    return Cause(
        "averaged_twice",
        _sure_of_ranks(e),
        f"every element is 1/{e.world_size} of what it should be, and there are {e.world_size} ranks",
        "divide by the world size once: in the loss, before the all-reduce or after it",
    )


def _accumulation_scale(e: GradientEvidence) -> Cause | None:
    k = e.num_micro_batches
    if k > 1 and _close(e.observed, e.expected * k):
        return Cause(
            "missing_accumulation_average",
            0.9,
            f"every element is {k} times what it should be, and there are {k} micro-batches",
            "divide the loss by the number of micro-batches",
        )
    if k > 1 and _close(e.observed * k, e.expected):
        return Cause(
            "divided_by_micro_batches",
            0.9,
            f"every element is 1/{k} of what it should be, and there are {k} micro-batches: the loop has divided the "
            "loss already",
            "divide by the number of micro-batches once, in the loss",
        )
    return None


def _own_value(e: GradientEvidence) -> Cause | None:
    if e.rank in e.local and _close(e.observed, e.local[e.rank]):
        return Cause(
            "not_synchronised",
            1.0,
            f"rank {e.rank} holds exactly its own local gradient: this parameter's gradient was never reduced",
            "make sure that every parameter is in some collective, and that the result is written back to .grad",
        )
    if e.world_size > 1 and e.rank in e.local and _close(e.observed * e.world_size, e.local[e.rank]):
        if any(_close(theirs, e.observed) for theirs in e.elsewhere.values()):  # others have it, too: it was summed
            return None
        return Cause(
            "not_synchronised",
            0.95,
            f"rank {e.rank} holds its own local gradient divided by {e.world_size}, the number of ranks: averaged, but "
            "never summed",
            "make sure that every parameter is in some collective, the last bucket's included",
        )
    return None


def _another_ranks_value(e: GradientEvidence) -> Cause | None:
    for rank, local in e.local.items():
        if rank != e.rank and _close(e.observed, local):
            return Cause(
                "one_ranks_gradient",
                0.95,
                f"every element is rank {rank}'s local gradient: gradients were copied from it, not averaged",
                "use all_reduce, not broadcast, for gradients",
            )
    return None


def _stale(e: GradientEvidence) -> Cause | None:
    if e.previous is None or not _close(e.observed, e.previous):
        return None
    return Cause(
        "stale_gradient",
        0.9,
        "every element is the gradient of the step before: it was not replaced in this step",
        "wait for this step's collectives before this step's optimizer.step(), and write their result back",
    )


def _partly_averaged(e: GradientEvidence) -> Cause | None:
    """The sum of the others and W times its own, one rank's share left out, and their like: some ranks only."""
    if e.world_size < 3 or len(e.local) < e.world_size:
        return None
    ranks = sorted(e.local)
    for size in range(2, e.world_size):
        for group in combinations(ranks, size):
            total = np.sum([e.local[r] for r in group], axis=0)
            for divisor in (size, e.world_size):
                if _close(e.observed * divisor, total):
                    return Cause(
                        "some_ranks_only",
                        0.9,
                        f"every element is the sum over ranks {', '.join(map(str, group))} alone, divided by {divisor}",
                        "reduce over the group of all ranks that train this parameter",
                    )
        if size > 3:  # the number of groups explodes, and nobody leaves out half of a large group by mistake
            break
    return None


def _rescaled(e: GradientEvidence) -> Cause | None:
    """A multiple of the right gradient that no count explains: the direction is right, the length is not."""
    square = float(np.vdot(e.expected, e.expected).real)
    if e.clipped or square == 0 or np.count_nonzero(e.expected) < 3:
        return None
    factor = float(np.vdot(e.expected, e.observed).real) / square
    if factor == 0 or not _close(e.observed, e.expected * factor):
        return None
    return Cause(
        "rescaled",
        0.9,
        f"every element is {factor:.6g} times what it should be, {_as_if(e.world_size, factor)}",
        "look for a number of ranks that is not the group's, clipping, a loss scale or a weight of a rank's own",
    )


def _as_if(world_size: int, factor: float) -> str:
    counted = world_size / factor
    if counted > 1.5 and abs(counted - round(counted)) < 1e-6:
        return f"as if {round(counted)} ranks had been counted where there are {world_size}"
    return "which is no count of ranks or micro-batches"


def _mixed_with(e: GradientEvidence) -> str | None:
    """Ranks without a gradient of this parameter have sent that of another one: collectives were matched by turn."""
    mine = {rank: gradient for rank, gradient in e.local.items() if gradient.any()}
    if not 0 < len(mine) < e.world_size:
        return None
    for name, theirs in e.neighbours.items():
        others = {rank: theirs[rank] for rank in range(e.world_size) if rank not in mine and rank in theirs}
        together = [*mine.values(), *others.values()]
        complete = len(together) == e.world_size and any(gradient.any() for gradient in others.values())
        if complete and _close(e.observed * e.world_size, np.sum(together, axis=0)):
            return f"rank {', '.join(map(str, mine))}'s own and rank {', '.join(map(str, others))}'s {name}"
    return None


def _another_parameter(e: GradientEvidence) -> Cause | None:
    contains = e.contains or _mixed_with(e)
    if contains is None:
        return None
    return Cause(
        "another_parameters_gradient",
        1.0 if e.contains else 0.95,
        f"different parameters were added up: {contains}",
        "fix on every rank, before backward, which gradients share a bucket and in which order; never by arrival",
    )


_PATTERNS: tuple[Callable[[GradientEvidence], Cause | None], ...] = (
    _early_read,
    _written_in_flight,
    _own_value,
    _missing_average,
    _averaged_twice,
    _accumulation_scale,
    _last_micro_batch_only,
    _another_ranks_value,
    _stale,
    _partly_averaged,
    _another_parameter,
    _rescaled,
    _rounded,
    _not_finite,
)

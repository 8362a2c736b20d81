"""Causes that lie in time: micro-batches and steps that were counted wrongly, left out, lost or never cleared.

Special here: they are told apart by the gradient of each micro-batch alone, which the single process recorded.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import CONDITION, FEWEST_ELEMENTS, Cause, GradientEvidence, close

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
NEARLY_ONCE = 1e-3  # a count this near to 1 is rounded, not wrong


def accumulation_scale(e: GradientEvidence) -> Cause | None:
    k = e.num_micro_batches
    sure = 0.9 if e.world_size % k else 0.6  # it may be the number of nodes, or of ranks on one
    if k > 1 and close(e.observed, e.expected * k):
        return Cause(
            "missing_accumulation_average",
            sure,
            f"every element is {k} times what it should be, and there are {k} micro-batches",
            "divide the loss by the number of micro-batches",
        )
    if k > 1 and close(e.observed * k, e.expected):
        return Cause(
            "divided_by_micro_batches",
            sure,
            f"every element is 1/{k} of what it should be, and there are {k} micro-batches: the loop has divided the "
            "loss already",
            "divide by the number of micro-batches once, in the loss",
        )
    return None


def first_micro_batch_only(e: GradientEvidence) -> Cause | None:
    """The cause if only the first micro-batch was reduced, as when a flag or counter is not reset after it."""
    if e.num_micro_batches < 2 or len(e.first) < e.world_size or e.rank not in e.local:
        return None
    mean = np.mean(list(e.first.values()), axis=0)
    rest = e.local[e.rank] - e.first[e.rank]
    if close(e.observed, mean + rest) and rest.any():
        left = f"what rank {e.rank} accumulated after it is its own, and was never reduced"
    elif close(e.observed, mean):
        left = "what accumulated after it is lost"
    else:
        return None
    return Cause(
        "first_micro_batch_only",
        0.95,
        f"of {e.num_micro_batches} micro-batches only the first was averaged over ranks; {left}",
        "mark what was sent per backward and not per step: clear the marks when the next backward begins",
    )


def last_micro_batch_only(e: GradientEvidence) -> Cause | None:
    if e.num_micro_batches < 2 or len(e.last) < e.world_size:
        return None
    mean = np.mean(list(e.last.values()), axis=0)
    for factor in (1, e.num_micro_batches):
        if close(e.observed, mean * factor) or close(e.observed, e.last[e.rank] * factor):
            return Cause(
                "last_micro_batch_only",
                0.95,
                f"the gradient is that of the last of {e.num_micro_batches} micro-batches alone: what had accumulated "
                "before it is lost",
                "reduce what has accumulated in .grad, not the gradient that a hook is handed",
            )
    earlier = e.local[e.rank] - e.last[e.rank] if e.rank in e.local else np.zeros(())
    if not e.agreed and earlier.any() and close(e.observed, mean + earlier):
        return Cause(
            "last_micro_batch_only",
            0.95,
            f"of {e.num_micro_batches} micro-batches only the last was averaged over ranks; what rank {e.rank} had "
            "accumulated before it is its own, and was never reduced",
            "reduce what has accumulated in .grad, not the gradient that a hook is handed",
        )
    return None


def unequal_micro_batches(e: GradientEvidence) -> Cause | None:
    """The cause if all ranks count equally and their two micro-batches do not: a sum over ranks was summed again with
    the next micro-batch, or one loss was scaled differently. The counts are found by least squares.
    """
    if e.num_micro_batches != 2 or min(len(e.first), len(e.last)) < e.world_size or e.observed.dtype.kind != "f":
        return None
    if any(np.iscomplexobj(gradient) for of in (e.first, e.last) for gradient in of.values()):
        return None
    shares = [np.mean([*of.values()], axis=0, dtype=np.float64).reshape(-1) for of in (e.first, e.last)]
    columns = np.stack(shares, axis=1)
    lengths = np.linalg.norm(columns, axis=0)
    if not FEWEST_ELEMENTS <= e.observed.size == len(columns) or not np.isfinite(e.observed).all():
        return None
    if not (lengths > 0).all() or not np.isfinite(lengths).all():
        return None
    if np.linalg.cond(columns / lengths) > CONDITION:  # nearly multiples of each other: tags, or one sample
        return None
    counts = np.linalg.lstsq(columns / lengths, e.observed.reshape(-1).astype(np.float64))[0] / lengths
    if not close(e.observed, (columns @ counts).reshape(e.observed.shape)):
        return None
    if close(e.expected, columns.sum(axis=1).reshape(e.expected.shape) * e.world_size):  # a declared sum
        counts /= e.world_size
    if np.abs(counts - 1).max() < NEARLY_ONCE:
        return None
    return Cause(
        "unequal_micro_batches",
        0.9,
        f"the first of two micro-batches counts {counts[0]:.4g} times in it, and the last {counts[1]:.4g} times, where "
        "each should count once",
        "reduce once a step, after the last backward: what has been summed over ranks would be summed again with the "
        "next micro-batch; and divide the loss of every micro-batch by the same number",
    )


def stale(e: GradientEvidence) -> Cause | None:
    if e.previous is None or not close(e.observed, e.previous) or close(e.observed, e.expected):
        return None  # tags are equal in every step: a gradient close to both is this step's
    return Cause(
        "stale_gradient",
        0.9,
        "every element is the gradient of the step before: it was not replaced in this step",
        "wait for this step's collectives before this step's optimizer.step(), and write their result back",
    )


def not_cleared(e: GradientEvidence) -> Cause | None:
    """The cause if the gradient is the right one plus that of the step before, from all ranks or some of them."""
    if e.previous is None or e.previous.shape != e.expected.shape or not e.previous.any():
        return None
    if e.clipped or _is_multiple(e.observed, e.expected):
        return None
    for num_ranks in range(1, e.world_size + 1):
        if close(e.observed, e.expected + e.previous * (num_ranks / e.world_size)):
            which = "every rank" if num_ranks == e.world_size else f"{num_ranks} of {e.world_size} ranks"
            return Cause(
                "not_cleared",
                0.9,
                f"every element is the right gradient and that of the step before: {which} went into this step without "
                "clearing it",
                "have zero_grad() clear every parameter of this rank, and every buffer of your own that accumulates",
            )
    return None


def dropped_counts(e: GradientEvidence) -> Cause | None:
    """The cause if the gradient is twice the right one, where the same samples came before and were to be dropped."""
    if not e.dropped or not close(e.observed, e.expected * 2):
        return None
    return Cause(
        "not_cleared",
        0.9,
        "every element is the right gradient and that of the batch before, which was to be thrown away: zero_grad() "
        "did not clear it",
        "have zero_grad() clear all that accumulates beside .grad: main gradients, flat buffers, counters",
    )


def _is_multiple(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether ``a`` is a multiple of ``b``, as a single element always is."""
    square = float(np.vdot(b, b).real)
    return square > 0 and close(a, b * (float(np.vdot(b, a).real) / square))

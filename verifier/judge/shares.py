"""Causes that lie in each rank's weight in the mean: the right gradients are mixed in wrong shares.

Special here: the shares are found by least squares. They are reported only if they explain every element and the ranks'
gradients are no multiples of one another, so that the shares are unique.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import CONDITION, FEWEST_ELEMENTS, Cause, GradientEvidence, close

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
FEWEST_BY_RANK = 2  # elements for each share that is fitted
FEW_ULPS = 64  # of float64: the rounding of sums
SINGLE_EPS = float(np.finfo(np.float32).eps)
NEAR = 1e-3  # of a factor; clipping adds 1e-6 to the norm
FITTED = 0.1  # of what a factor explains may be left over


def rescaled(e: GradientEvidence) -> Cause | None:
    """The cause if the gradient is a multiple of the right one: the direction is right, the length is not."""
    square = float(np.vdot(e.expected, e.expected).real)
    if square == 0 or np.count_nonzero(e.expected) < 3 or not tell_ranks_apart(e):
        return None
    factor = float(np.vdot(e.expected, e.observed).real) / square
    if factor == 0 or not close(e.observed, e.expected * factor):
        return None
    if abs(factor - 1) < 1e-6:
        return _a_rounded_factor(e, factor)
    if e.clipped:
        return Cause(
            "clipped_otherwise",
            0.8,  # another parameter's wrong gradient changes the norm as well
            f"every element is {factor:.6g} times what clipping leaves of the right gradient: it was clipped by "
            f"another norm than that of the whole gradient, {_what_norm(e.world_size, factor)}",
            "take the norm once over what is whole: squares are added up over the parts that ranks own alone (a "
            "sharder's own clip_grad_norm_()), not over copies, and of gradients without a loss scale; norm_type=inf "
            "asks for the largest element, and not for a power",
        )
    return Cause(
        "rescaled",
        0.9,
        f"every element is {factor:.6g} times what it should be, {_as_if(e.world_size, factor)}",
        "look for a number of ranks that is not the group's, clipping, a loss scale or a weight of a rank's own",
    )


def _a_rounded_factor(e: GradientEvidence, factor: float) -> Cause | None:
    """The cause if all elements are off by one factor, as near to 1 as float32's rounding of a number."""
    if e.observed.dtype != np.float64 or not FEW_ULPS * np.finfo(np.float64).eps < abs(factor - 1) <= SINGLE_EPS:
        return None
    explained = FITTED * abs(factor - 1) * np.abs(e.expected).max(initial=0.0)
    if np.abs(e.observed - e.expected * factor).max(initial=0.0) > explained:
        return None  # so near to 1, a factor fits whatever is nearly right
    return Cause(
        "rounded_factor",
        0.8,
        f"every element is the right gradient times 1 {factor - 1:+.1e}: a factor, such as 1/{e.world_size}, was held "
        "in float32, where the gradient is in float64, or something small was added to it",
        "make factors Python numbers, or tensors of the gradient's own dtype, and add nothing small to a divisor; or "
        "declare Contract(lossy='float32')",
    )


def _what_norm(world_size: int, factor: float) -> str:
    """A phrase for the wrong norm by which a gradient was clipped that is ``factor`` times as large as it should be."""
    if abs(factor * np.sqrt(world_size) - 1) < NEAR:
        return f"by one that is the root of {world_size} times too large: ranks' copies of it were added up"
    if factor < 1:
        return (
            f"by one that is {1 / factor:.6g} times too large: copies were added up, a loss scale is in it, or it is "
            "the root of a sum of squares where the largest element was asked for"
        )
    return (
        "by that of one rank's part perhaps; or what is smaller than max_norm was made larger: the factor has to be "
        "min(1, max_norm / norm)"
    )


def _as_if(world_size: int, factor: float) -> str:
    counted = world_size / factor
    if counted > 1.5 and abs(counted - round(counted)) < 1e-6:
        return f"as if {round(counted)} ranks had been counted where there are {world_size}"
    return "which is no count of ranks or micro-batches"


def unequal_shares(e: GradientEvidence) -> Cause | None:
    shares = shares_of(e)
    if shares is None or close(shares, np.full_like(shares, shares.mean())):
        return None
    if e.clipped:
        return _clipped_too_early(e, shares)
    told = " + ".join(f"{share:.4g} times rank {rank}'s" for rank, share in zip(sorted(e.local), shares, strict=True))
    mean_and_own = np.array([1 / e.world_size + (rank == e.rank) for rank in sorted(e.local)])
    if close(shares, mean_and_own):
        return Cause(
            "unequal_shares",
            0.9,
            f"every element is {told} gradient: the mean, and rank {e.rank}'s own once more, added after the reduction",
            "reduce once autograd has added up everything, in a post-accumulate hook or after the backward",
        )
    return Cause(
        "unequal_shares",
        0.9,
        f"every element is {told} gradient, where each should count {1 / e.world_size:.4g} times",
        "give every rank the same weight: no scaling or clipping of a rank's own gradient before the reduction, no "
        "mean of means of groups of unequal sizes, one denominator for all",
    )


def _clipped_too_early(e: GradientEvidence, shares: np.ndarray) -> Cause | None:
    """The cause if clipping explains ``shares``: it makes each share smaller and never negative."""
    if not ((shares > 0) & (shares * e.world_size < 1 + 1e-6)).all():
        return None
    counted = [(rank, share) for rank, share in zip(sorted(e.local), shares, strict=True) if share > 1e-9]
    told = " + ".join(f"{share:.4g} times rank {rank}'s" for rank, share in counted)
    return Cause(
        "clipped_before_reduction",
        0.8,  # ranks may count differently without clipping as well
        f"every element is {told} gradient, where all should be made smaller alike: each rank clips its own gradient, "
        "and the mean of what is left is not the clipped mean",
        "clip after the reduction, in clip_grad_norm_() or in the loop: all ranks then have one norm",
    )


def shares_of(e: GradientEvidence) -> np.ndarray | None:
    """The multiple of each rank's own gradient in ``e.observed``, by rank; None if that does not explain it, or is not
    unique.
    """
    if e.world_size < 2 or len(e.local) < e.world_size or e.observed.dtype.kind != "f":
        return None
    if any(map(np.iscomplexobj, e.local.values())):
        return None
    if e.observed.size < max(FEWEST_ELEMENTS, FEWEST_BY_RANK * e.world_size) or not np.isfinite(e.observed).all():
        return None
    columns = np.stack([np.asarray(e.local[rank], np.float64).reshape(-1) for rank in sorted(e.local)], axis=1)
    if np.count_nonzero(columns.any(axis=1)) < max(FEWEST_ELEMENTS, FEWEST_BY_RANK * e.world_size):
        return None  # an element that is zero on all ranks, as behind a dead unit, fits any shares
    lengths = np.linalg.norm(columns, axis=0)
    if not (lengths > 0).all() or not np.isfinite(lengths).all() or np.linalg.cond(columns / lengths) > CONDITION:
        return None
    found: np.ndarray = np.linalg.lstsq(columns / lengths, e.observed.reshape(-1).astype(np.float64))[0] / lengths
    if not close(e.observed, (columns @ found).reshape(e.observed.shape)):
        return None
    return found


def tell_ranks_apart(e: GradientEvidence) -> bool:
    """Return whether the ranks' own gradients are no multiples of one another. Tagged ones are: mixtures only scale."""
    mine = [np.asarray(gradient).reshape(-1) for gradient in e.local.values() if np.any(gradient)]
    if len(mine) < 2:
        return True
    first = mine[0] / np.linalg.norm(mine[0])
    return not all(close(abs(first), abs(other) / np.linalg.norm(other)) for other in mine[1:])

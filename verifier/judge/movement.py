"""Whether weights moved, by what factor too far, and whether the world size explains that factor. Pure.

Special here: one factor for all elements of a tensor, or none. A factor that fits only most of them is a coincidence.
"""

from __future__ import annotations

import math

import numpy as np

from verifier.recording import RankRecording


def rests(rank: RankRecording, name: str, before: int, after: int) -> bool:
    """Return whether the weight has the same bits after step ``before`` and after step ``after``."""
    held = [rank.tensor("weight", step, name) for step in (before, after)]
    return None not in held and len({tensor.digest for tensor in held if tensor is not None}) == 1


def common_factor(start: np.ndarray | None, after: np.ndarray | None, wanted: np.ndarray | None) -> float | None:
    """The one factor, other than 1, by which every element moved further than it should; None if there is none.

    ``start`` and ``after`` are the weights before and after a step, of any dtype. Different shapes have no factor.
    """
    if start is None or after is None or wanted is None or not start.shape == after.shape == wanted.shape:
        return None
    if "b" in (start.dtype.kind, after.dtype.kind, wanted.dtype.kind):  # numpy does not subtract booleans
        return None
    with np.errstate(invalid="ignore", divide="ignore"):  # weights that have not arrived are signalling NaNs
        moved, due = after - start, wanted - start
        told = np.abs(due) > 1e-3 * np.abs(due).max(initial=0.0)
        factor = float(np.median(np.real(moved[told] / due[told]))) if np.count_nonzero(told) >= 4 else math.nan
        alike = bool((np.abs(moved - factor * due) <= 1e-5 * np.abs(due).max(initial=0.0)).all())
    return factor if alike and abs(factor - 1) > 1e-3 else None


def told(factor: float) -> str:
    """``factor`` in three digits, or in as many as are needed to show that it is not 1."""
    return next((text for digits in (3, 6, 12) if (text := f"{factor:.{digits}g}") != "1"), f"{factor:.12g}")


def is_about(factor: float, number: float) -> bool:
    return abs(factor - number) < 1e-4 * number


def told_by_the_world_size(factor: float, world_size: int) -> str:
    """The phrase ": the world size", or its root, or one over it, if that is the factor; else an empty string."""
    known = {
        "the world size": world_size,
        "the root of the world size": world_size**0.5,
        "one over the world size": 1 / world_size,
    }
    return next((f": {words}" for words, number in known.items() if is_about(factor, number)), "")

"""Causes that lie in space: the right numbers in the wrong places.

Special here: a permutation is not fitted by a tolerance. Either all numbers of a tensor are there, or the codes of a
tagged gradient say where they belong.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import FEWEST_ELEMENTS, Cause, GradientEvidence, close

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
FEWEST_VALUES = 4
HINT = (
    "pack and unpack parameters, or shards, in one order, and copy by index: a view of a transposed tensor, or of one "
    "behind padding, has its elements elsewhere in memory"
)


def misplaced(e: GradientEvidence) -> Cause | None:
    if e.elsewhere is not None:
        return Cause(
            "misplaced_elements",
            0.9,
            f"the means are right and in wrong places: {e.elsewhere}",
            HINT,
        )
    if not same_in_another_order(e.observed, e.expected):
        return None
    return Cause(
        "misplaced_elements",
        0.9,
        "the right numbers in another order: every number of the gradient is there, and not at its index",
        HINT,
    )


def same_in_another_order(observed: np.ndarray | None, expected: np.ndarray | None) -> bool:
    """Return whether these are the same numbers up to rounding, in other places. Too few of them are no evidence."""
    if observed is None or expected is None:
        return False
    if observed.dtype.kind != "f" or observed.shape != expected.shape or expected.size < FEWEST_ELEMENTS:
        return False
    if close(observed, expected) or len(np.unique(expected[expected != 0])) < FEWEST_VALUES:
        return False
    return close(np.sort(observed, axis=None), np.sort(expected, axis=None))

"""How far a whole tensor's movement is from the expected one: in its norm, and in elements that were left behind.

Special here: a norm hides a few elements. If three of 40,000 never move, the norm is off by less than a hundredth.
"""

from __future__ import annotations

import numpy as np

STILL = 1e-12  # of a tensor's norm: less than this is no movement
LEFT_BEHIND = 2.0  # times the bound: the margin reported for a tensor in which some elements rest
FAR_PART, FAR_ULPS = 0.1, 1024  # of the RMS movement, and ulps of float32: an element due to move further cannot rest
SINGLE_EPS = float(np.finfo(np.float32).eps)


def off_by(observed: np.ndarray, wanted: np.ndarray, start: np.ndarray) -> float:
    """The error's norm relative to the movement's. Different shapes and non-finite values are infinitely wrong."""
    if not observed.shape == wanted.shape == start.shape:
        return float("inf")
    if observed.dtype == wanted.dtype and np.array_equal(observed, wanted, equal_nan=wanted.dtype.kind in "fc"):
        return 0.0
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        moved = float(np.linalg.norm((wanted - start).ravel()))
        least = STILL * float(np.linalg.norm(start.ravel()))
        off = float(np.linalg.norm((observed - wanted).ravel())) / max(moved, least, 1e-300)
    return off if np.isfinite(off) else float("inf")


def some_rest(observed: np.ndarray, wanted: np.ndarray, begun: np.ndarray) -> bool:
    """Return whether an element did not move that should move as far as most do, and far more than float32 rounds.

    Such elements do not show in the norm of a large tensor.
    """
    if not observed.shape == wanted.shape == begun.shape or wanted.dtype.kind not in "fc" or not wanted.size:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        due = np.abs(wanted - begun)
        far = (due > FAR_PART * np.sqrt(np.mean(np.square(due)))) & (due > FAR_ULPS * SINGLE_EPS * np.abs(begun))
    return bool(((observed == begun) & far).any())

"""How far the movement of a whole tensor is from the one wanted: in its norm, and in elements that were left behind.

Special here: a norm hides what a few elements do. Three of 40,000 that never move are off by less than a hundredth.
"""

from __future__ import annotations

import numpy as np

STILL = 1e-12  # of a tensor's norm: what is no movement
LEFT_BEHIND = 2.0  # times the bound: what is said of a tensor of which some elements rest
FAR_PART, FAR_ULPS = 0.1, 1024  # of the mean movement, and in the last place of float32: what cannot rest by rounding
SINGLE_EPS = float(np.finfo(np.float32).eps)


def off_by(observed: np.ndarray, wanted: np.ndarray, start: np.ndarray) -> float:
    """The error's norm over that of the movement. Shapes that differ, and what is not finite, are infinitely wrong."""
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
    """Are there elements that have not moved, of those that move as far as most do, and far above roundings of float32?

    To the norm of a large tensor they are nothing.
    """
    if not observed.shape == wanted.shape == begun.shape or wanted.dtype.kind not in "fc" or not wanted.size:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        due = np.abs(wanted - begun)
        far = (due > FAR_PART * np.sqrt(np.mean(np.square(due)))) & (due > FAR_ULPS * SINGLE_EPS * np.abs(begun))
    return bool(((observed == begun) & far).any())

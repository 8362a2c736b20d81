"""Comparing tensors: what counts as equal, and how large an error is. Pure numpy.

Special here: there is no default tolerance. Either the arithmetic was exact and values must be equal, or a bound
follows from the dtype. The error is reported as *margin* (error / bound; at most 1 passes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

# In float64 correct strategies agree with the single process to about 1e-13 of the largest gradient of a tensor
# (a few hundred additions of unit roundoff 1.1e-16). Wrong ones are off by 1e-6 and more. The bound lies between.
FLOAT64_BOUND = 1e-10


@dataclass(frozen=True)
class Difference:
    """How ``observed`` differs from ``expected``. ``margin`` is the largest error over the bound (inf: no bound)."""

    margin: float
    index: tuple[int, ...]  # of the largest error
    expected: float
    observed: float

    @property
    def equal(self) -> bool:
        return self.margin <= 1


def compare(observed: np.ndarray, expected: np.ndarray, bound: np.ndarray | float) -> Difference:
    """The largest error of ``observed`` against ``expected``, compared element by element, as a multiple of ``bound``.

    ``bound`` is absolute, one for all elements or one for each; 0 asks for equal numbers. A NaN or infinite element is
    infinitely wrong unless it is expected. Both parts of complex numbers are compared; ``index`` then ends with 0 for
    the real and 1 for the imaginary part. Different shapes are infinitely wrong, and so are real numbers in place of
    complex ones.
    """
    if observed.shape != expected.shape or np.iscomplexobj(observed) != np.iscomplexobj(expected):
        return Difference(float("inf"), (), float(expected.size), float(observed.size))
    if observed.size == 0:
        return Difference(0.0, (), 0.0, 0.0)
    observed, expected = _real(observed), _real(expected)
    if observed.dtype == expected.dtype and np.array_equal(observed, expected):  # the usual case
        return Difference(0.0, (0,) * expected.ndim, float(expected.flat[0]), float(observed.flat[0]))
    bounds = np.asarray(bound, np.float64)
    bounds = np.broadcast_to(
        bounds.reshape(bounds.shape + (1,) * (expected.ndim - bounds.ndim if bounds.ndim else 0)), expected.shape
    )
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        error = np.abs(observed.astype(np.float64) - expected.astype(np.float64))
        error = np.where(np.isnan(error), np.inf, error)
        error[(observed == expected) | (np.isnan(observed) & np.isnan(expected))] = 0.0
        margins = np.where(error == 0, 0.0, error / bounds)
    margins = np.where(np.isnan(margins), np.inf, margins)
    worst = np.unravel_index(int(np.argmax(margins)), margins.shape)
    at = tuple(int(i) for i in worst)
    return Difference(float(margins[worst]), at, float(expected[worst]), float(observed[worst]))


def _real(values: np.ndarray) -> np.ndarray:
    """``values``, with complex numbers as pairs in a new last dimension."""
    return np.stack((values.real, values.imag), axis=-1) if values.dtype.kind == "c" else values


UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "complex64": 2.0**-24} | dict.fromkeys(
    ("float64", "complex128"), 2.0**-53
)


def widened(values: np.ndarray) -> np.ndarray:
    """``values`` in float64 or complex128, in which sums and squares of narrower numbers do not overflow."""
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def bound_exact(magnitude: float, world_size: int, dtype: str = "float32") -> float:
    """0 if dividing by the world size equals multiplying by its rounded reciprocal; else a rounding bound.

    torch's DDP multiplies by 1/W, which is inexact in float32 for W = 7, 13, 14, 15, ... Then each of W terms is
    rounded twice and each of W - 1 additions once: at most (W + 1) unit roundoffs of ``magnitude``, the largest mean
    over ranks of the absolute local gradients (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2).
    """
    exact = reciprocal_is_exact(world_size, dtype)
    return 0.0 if exact else (world_size + 1) * UNIT_ROUNDOFF[dtype] * magnitude


def bound_of_mean(magnitude: np.ndarray, world_size: int, dtype: str) -> np.ndarray:
    """How far the mean of W numbers, computed in ``dtype`` in any order, may be from the true mean, per element.

    Each term is scaled at most once (two roundings if by a rounded 1/W), W - 1 additions round, and the result is
    stored once: at most (W + 2) unit roundoffs of ``magnitude``, the mean of the terms' absolute values (Higham,
    section 4.2), plus at most W + 2 times the smallest positive number of the dtype.
    """
    return (world_size + 2) * (UNIT_ROUNDOFF[dtype] * magnitude + _smallest(dtype))


def _smallest(dtype: str) -> float:
    """The smallest positive number of ``dtype``, which limits the rounding error of tiny numbers."""
    return 2.0**-133 if dtype == "bfloat16" else 2.0**-24 if dtype == "float16" else 2.0**-149


def bound_lossy(magnitude: float, world_size: int, dtype: str) -> float:
    """The error bound for gradients that a contract declares to be rounded to ``dtype`` on the wire.

    Each of W terms is rounded once, each of W - 1 additions may be, and the result is rounded once more: at most
    (W + 1) unit roundoffs of ``magnitude``, the largest mean over ranks of the absolute local gradients (Higham,
    section 4.2), plus at most W + 1 times the smallest positive number of the dtype, which is not small in float16
    (6e-8).
    """
    return (world_size + 1) * (UNIT_ROUNDOFF[dtype] * magnitude + _smallest(dtype))


def bound_float64(expected: np.ndarray) -> float:
    """The bound for a gradient computed in float64, relative to its largest element."""
    return FLOAT64_BOUND * max(largest_element(expected), 1e-30)


def largest_element(values: np.ndarray) -> float:
    """The largest magnitude among the finite elements. An infinite one would give a bound that everything passes."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def reciprocal_is_exact(world_size: int, dtype: str = "float32") -> bool:
    """Return whether ``(n * W) * fl(1 / W)`` rounds to n for all n: it does if fl(1/W) * W is within u/2 of 1."""
    kind = np.float32 if dtype == "float32" else np.float64
    return abs(Fraction(float(kind(1) / kind(world_size))) * world_size - 1) <= Fraction(UNIT_ROUNDOFF[dtype]) / 2


def odd_ones_out(digests: Mapping[int, str]) -> tuple[list[int], bool]:
    """The ranks whose digest is not the majority's, and whether there was a majority.

    Without a majority (a tie, or all different) the lowest rank is the standard.
    """
    counts = Counter(digests.values()).most_common()
    if len(counts) == 1:
        return [], True
    majority = counts[0][1] > counts[1][1]
    standard = counts[0][0] if majority else digests[min(digests)]
    return [rank for rank, digest in sorted(digests.items()) if digest != standard], majority

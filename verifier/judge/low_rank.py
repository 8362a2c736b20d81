"""Whether a gradient was sent as the product of two thin matrices: it then has a low rank, and the right one has not.

Special here: a gradient that one rank computed from few samples has a low rank as well, so this comes after the
patterns that know the ranks' own gradients. Matrices have the first dimension against all others, as in Vogels et al.,
"PowerSGD" (2019). Of a large matrix, the rank of its product with random numbers is taken, which is the same up to the
sketch's size: Halko et al., "Finding structure with randomness" (2011).
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import Cause, GradientEvidence, is_one_row

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
LOW, HIGH = 2, 4  # matrix ranks: at most LOW is low, at least HIGH is not
SKETCH = 32  # rows and columns to which large matrices are reduced
ROUNDINGS = 1e-5  # of the largest singular value, as float32 rounds a product


def low_rank(e: GradientEvidence) -> Cause | None:
    if e.observed.ndim < 2 or not e.observed.size or {e.observed.dtype.kind, e.expected.dtype.kind} != {"f"}:
        return None
    observed, expected = (gradient.reshape(len(gradient), -1) for gradient in (e.observed, e.expected))
    if min(expected.shape) < HIGH or not (_has_a_rank(observed) and _has_a_rank(expected)):
        return None
    if is_one_row(observed):
        return None
    found, wanted = _rank(observed), _rank(expected)
    if found > LOW or wanted < HIGH:
        return None
    return Cause(
        "low_rank",
        0.8,
        f"as a matrix of {' x '.join(map(str, observed.shape))} it has rank {found}, and the right one "
        f"{wanted}{' or more' if wanted == SKETCH else ''}: what was sent are thin factors of it",
        "send the whole gradient; or keep what is lost, add it in the next step, and declare the loss: "
        "Contract(lossy=...)",
    )


def _has_a_rank(matrix: np.ndarray) -> bool:
    return bool(np.isfinite(matrix).all() and matrix.any())


def _rank(matrix: np.ndarray) -> int:
    scaled = matrix.astype(np.float64) / np.abs(matrix).max()  # unscaled, sums of the largest numbers would overflow
    small = _sketched(_sketched(scaled).T)
    sizes = np.linalg.svd(small, compute_uv=False)
    return int((sizes > ROUNDINGS * sizes[0]).sum())


def _sketched(matrix: np.ndarray) -> np.ndarray:
    """``matrix`` reduced to few columns, which are sums of all columns with fixed random weights."""
    columns = matrix.shape[1]
    return matrix @ np.random.default_rng(0).normal(size=(columns, SKETCH)) if columns > SKETCH else matrix

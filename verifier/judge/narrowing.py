"""Whether a wrong gradient or weight was rounded to a narrower dtype. Pure functions on arrays.

Special here: a small error is not enough. A value that travelled in a narrow dtype *is* a number of that dtype, up to
the division by the world size. A gradient that is off by one per cent for another reason is not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from verifier.judge.evidence import Cause, GradientEvidence

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here

# The narrowest comes first: except for its range, a number of bfloat16 is a number of float16 as well.
ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
MANY = 0.1  # of the elements: rounding affects many places
FEW_ULPS = 8
MOST = 0.98  # of the elements that must be numbers of the dtype


def rounded_to(observed: np.ndarray, expected: np.ndarray, local: Mapping[int, np.ndarray]) -> str | None:
    """The narrower dtype that explains ``observed``, of the shape of ``expected``; ``local``: each rank's own gradient.

    None if the error exceeds rounding, is in too few places, or if ``observed`` holds numbers that the dtype lacks.
    """
    kind = str(observed.dtype)
    if kind not in ("float32", "float64") or not (np.isfinite(observed).all() and expected.any()):
        return None
    world_size = len(local)
    magnitude = np.mean([np.abs(gradient) for gradient in local.values()], axis=0)
    error = np.abs(observed - expected)
    if np.count_nonzero(error) < max(3, MANY * np.count_nonzero(expected)):
        return None
    if (error <= FEW_ULPS * np.finfo(observed.dtype).eps * magnitude).all():  # rounding in its own dtype explains it
        return None
    for dtype, roundoff in ROUNDOFF.items():
        if dtype == kind or np.any(error > (world_size + 2) * roundoff * magnitude + 2.0**-24):
            continue
        if _numbers_of(observed, dtype) or _numbers_of(observed * world_size, dtype):
            return dtype
    return None


def another_dtype(e: GradientEvidence) -> Cause | None:
    """The cause if the gradient has a narrower dtype than its parameter, and no larger error than that explains."""
    if e.weight is None or e.weight.dtype == e.observed.dtype or str(e.observed.dtype) not in ROUNDOFF:
        return None
    largest = float(np.abs(e.expected).max(initial=0.0))
    if e.weight.dtype.kind != "f" or not largest or e.weight.dtype.itemsize < e.observed.dtype.itemsize:
        return None
    bound = (e.world_size + 2) * e.num_micro_batches * ROUNDOFF[str(e.observed.dtype)] * largest * FEW_ULPS
    if not np.abs(e.observed - e.expected).max(initial=0.0) <= bound:
        return None
    return Cause(
        "another_dtype",
        0.9,
        f"the gradient is {e.observed.dtype}, its parameter {e.weight.dtype}, and it is off by no more than that: "
        "it was put into .grad.data, or kept beside it, in another dtype",
        "copy what was reduced into the gradient that is there (grad.copy_(...)), which keeps its dtype, and add up in "
        "the wider of the two",
    )


def held_in(after: np.ndarray | None, wanted: np.ndarray | None, step: int, noise: float = 0.0) -> str | None:
    """The narrower dtype in which ``after``, the float64 weights after ``step``, was kept; ``wanted`` is right.

    ``noise``: how far narrower layers around them may have moved them. None if ``after`` holds other numbers than
    those of such a dtype, if its error is larger than that explains, or if ``wanted`` holds only such numbers as well,
    as in exact arithmetic.
    """
    if after is None or wanted is None or after.shape != wanted.shape or str(after.dtype) != "float64":
        return None
    if not (np.isfinite(after).all() and np.isfinite(wanted).all()):
        return None
    error, largest = np.abs(after - wanted).max(initial=0.0), np.abs(wanted).max(initial=0.0)
    for dtype, roundoff in ROUNDOFF.items():
        near = error <= FEW_ULPS * (step + 1) * roundoff * largest + noise
        if near and _numbers_of(after, dtype) and not _numbers_of(wanted, dtype):
            return dtype
    return None


def came_in(observed: np.ndarray, wanted: np.ndarray, world_size: int, bound: np.ndarray | float = 0.0) -> str | None:
    """The narrower dtype in which ``observed``, a float64 gradient within ``bound`` of ``wanted``, travelled.

    It holds numbers of that dtype, possibly divided by the world size, and ``wanted`` does not.
    """
    noise = float(np.max(bound, initial=0.0))
    for times in (1, world_size):
        if (dtype := held_in(observed * times, wanted * times, 0, noise * times)) is not None:
            return dtype
    return None


def rounded(dtype: str) -> Cause:
    """The cause for a gradient that travelled in ``dtype``."""
    return Cause(
        "rounded_on_the_wire",
        0.9,
        f"the gradient is right but for roundings to {dtype}, which the strategy does not declare",
        f"reduce in the gradient's own dtype; or, if that loss is meant, declare it: Contract(lossy={dtype!r})",
    )


def _numbers_of(values: np.ndarray, dtype: str) -> bool:
    """Return whether nearly all elements are numbers of ``dtype``, up to rounding in their own dtype."""
    narrow = _narrowed(values.astype(np.float32), dtype).astype(np.float64)
    few = 4 * np.finfo(values.dtype).eps * np.abs(values)
    return bool(np.mean(np.abs(values - narrow) <= few) >= MOST)


def _narrowed(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 ``values`` rounded to the nearest number of ``dtype``, ties to even."""
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
        return np.asarray(rounded, np.uint32).view(np.float32)
    return values.astype(np.float16).astype(np.float32) if dtype == "float16" else values

"""Ramps: large tensors whose elements rise by equal steps, stored as the start and the step of each run.

Special here: tagged gradients are such tensors (``tags``), and so are their payloads, sums and averages. The situation
``large`` would record a gigabyte of them on eight ranks, and records some kilobytes. The stored form is exact to the
bit: each element is made as it will be unpacked, and compared. Any other tensor is stored as it is. Pure functions on
numpy, for float64 alone: no other dtype holds the tags of a large model.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

LEAST_BYTES = 2**16  # smaller tensors gain nothing
MOST_NUMEL = 2**25  # a recording that asks for more was not written by the verifier
ELEMENTS_PER_RAMP = 64  # on average, at least: with shorter runs the numbers are stored as they are
FEW_RAMPS = 8  # may be short
BLOCK = 2**14  # elements: what fits into a core's cache
_COUNT = np.arange(BLOCK, dtype=np.float64)


def packed(data: memoryview) -> bytes | None:
    """``data`` (float64 elements) as ramps, each its first element, step and length; None if it is not made of them.

    A ramp goes on for as long as ``unpacked`` would give exactly these bits.
    """
    if not LEAST_BYTES <= len(data) <= 8 * MOST_NUMEL or len(data) % 8:
        return None
    values = np.frombuffer(data, np.float64)
    ramps, begin = list[tuple[float, float, int]](), 0
    with np.errstate(invalid="ignore", over="ignore"):
        while begin < len(values):
            step = values[begin + 1] - values[begin] if begin + 1 < len(values) else 0.0
            end = begin + 1 if np.isnan(step) else _end_of_ramp(values, begin, step)
            ramps.append((values[begin], step, end - begin))
            if len(ramps) > FEW_RAMPS + end // ELEMENTS_PER_RAMP:
                return None
            begin = end
    return np.array(ramps, np.float64).tobytes()


def _end_of_ramp(values: np.ndarray, begin: int, step: float) -> int:
    """Return where the elements stop rising from ``begin`` by ``step``, to the bit. In blocks, the first ones small."""
    bits, ramp, at, size = values.view(np.int64), np.empty(BLOCK), begin + 1, ELEMENTS_PER_RAMP
    while at < len(values):
        part = ramp[: min(size, len(values) - at)]
        _rise(part, values[begin], step, at - begin)
        same = part.view(np.int64) == bits[at : at + len(part)]
        if not same.all():
            return at + int(same.argmin())
        at, size = at + len(part), min(4 * size, BLOCK)
    return at


def _rise(part: np.ndarray, start: float, step: float, first: int) -> None:
    """Write the ``first`` and later elements of a ramp into ``part``, of at most ``BLOCK``."""
    np.add(_COUNT[: len(part)], first, out=part)
    part *= step
    part += start


@lru_cache(maxsize=2)  # the same tensor is often unpacked several times in a row
def unpacked(ramps: bytes, numel: int) -> np.ndarray | None:
    """The ``numel`` float64 elements that ``packed`` was given, read-only; None if ``ramps`` does not hold so many."""
    if len(ramps) % 24 or numel > MOST_NUMEL:
        return None
    starts, steps, lengths = np.frombuffer(ramps, np.float64).reshape(-1, 3).T
    if not (lengths >= 1).all() or lengths.sum() != numel:
        return None
    values, at = np.empty(numel), 0
    with np.errstate(invalid="ignore", over="ignore"):
        for start, step, length in zip(starts, steps, lengths.astype(np.int64).tolist(), strict=True):
            for first in range(0, length, BLOCK):
                _rise(values[at + first : at + min(first + BLOCK, length)], start, step, first)
            values[at] = start  # keeps -0.0 and NaN
            at += length
    values.flags.writeable = False
    return values

"""Ramps: large tensors whose elements rise by equal steps, stored as the start and the step of each run.

Special here: tagged gradients are such tensors (``tags``), and so are their payloads, sums and averages. The situation
``large`` would record a gigabyte of them on eight ranks, and records some kilobytes. The stored form is exact to the
bit: it is unpacked and compared before it is used, and any other tensor is stored as it is. Pure functions on numpy,
for float64 alone: no other dtype holds the tags of a large model.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

LEAST_BYTES = 2**16  # smaller tensors gain nothing
MOST_NUMEL = 2**25  # a recording that asks for more was not written by the verifier
ELEMENTS_PER_RAMP = 64  # on average, at least: with shorter runs the numbers are stored as they are
BLOCK = 2**14  # elements


def packed(data: memoryview) -> bytes | None:
    """``data`` (float64 elements) as ramps, each its first element, step and length; None if it is not made of them."""
    if not LEAST_BYTES <= len(data) <= 8 * MOST_NUMEL or len(data) % 8:
        return None
    values = np.frombuffer(data, np.float64)
    begins = _begins(values)
    if begins is None:
        return None
    if begins[-1] == len(values) - 2:  # a last ramp of two elements, whose difference may be rounded
        begins = np.append(begins, len(values) - 1)
    lengths, steps = np.diff(begins, append=len(values)), np.zeros(len(begins))
    longer = begins[lengths > 1]
    steps[lengths > 1] = values[longer + 1] - values[longer]
    if not all(_is_ramp(values[b : b + n], step) for b, n, step in zip(begins, lengths, steps, strict=True)):
        return None
    return np.column_stack((values[begins], steps, lengths)).tobytes()


def _begins(values: np.ndarray) -> np.ndarray | None:
    """The places where ramps begin; None if there are too many. The last element before a jump is a ramp of its own.

    It works in blocks that fit into a core's cache, which takes a quarter of the time.
    """
    begins, num = [np.zeros(1, np.int64)], 0
    for start in range(0, len(values) - 2, BLOCK):
        with np.errstate(invalid="ignore", over="ignore"):
            steps = np.diff(values[start : start + BLOCK + 2])
        begins.append(np.flatnonzero(steps[1:] != steps[:-1]) + (start + 1))
        num += len(begins[-1])
        if num > (start + BLOCK) // ELEMENTS_PER_RAMP:
            return None
    return np.concatenate(begins)


def _is_ramp(values: np.ndarray, step: float) -> bool:
    """Return whether ``unpacked`` would give exactly these bits."""
    bits = values.view(np.int64)
    for start in range(0, len(values), BLOCK):
        part = bits[start : start + BLOCK]
        with np.errstate(invalid="ignore", over="ignore"):
            ramp = np.arange(start, start + len(part)) * step
            ramp += values[0]
        if start == 0:
            ramp[0] = values[0]  # keeps -0.0 and NaN
        if not np.array_equal(ramp.view(np.int64), part):
            return False
    return True


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
                part = values[at + first : at + min(first + BLOCK, length)]
                np.multiply(np.arange(first, first + len(part)), step, out=part)
                part += start
            values[at] = start
            at += length
    values.flags.writeable = False
    return values

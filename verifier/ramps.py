"""Ramps: large tensors whose elements go up by equal steps, kept as where each run begins and how it rises.

Special here: tagged gradients are exactly that (``tags``), and what travels, is summed and averaged of them, too. The
situation ``large`` would leave a gigabyte of them on eight ranks, and leaves some kilobytes. What is kept is what was
there, to the bit: it is put together again before it is believed, and anything else is kept as it is. Pure functions
on numpy, float64 alone: no other dtype holds the tags of a large model.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

LEAST_BYTES = 2**16  # below, there is nothing to be gained
MOST_NUMEL = 2**25  # a recording that asks for more is none of ours
ELEMENTS_PER_RAMP = 64  # with shorter ones it is no ramp, but numbers
BLOCK = 2**14  # elements


def packed(data: memoryview) -> bytes | None:
    """``data`` (float64 elements) as ramps: of each its first element, step and length. None: it is none."""
    if not LEAST_BYTES <= len(data) <= 8 * MOST_NUMEL or len(data) % 8:
        return None
    values = np.frombuffer(data, np.float64)
    begins = _begins(values)
    if begins is None:
        return None
    if begins[-1] == len(values) - 2:  # two elements: their difference may be rounded
        begins = np.append(begins, len(values) - 1)
    lengths, steps = np.diff(begins, append=len(values)), np.zeros(len(begins))
    longer = begins[lengths > 1]
    steps[lengths > 1] = values[longer + 1] - values[longer]
    if not all(_is_ramp(values[b : b + n], step) for b, n, step in zip(begins, lengths, steps, strict=True)):
        return None
    return np.column_stack((values[begins], steps, lengths)).tobytes()


def _begins(values: np.ndarray) -> np.ndarray | None:
    """Where ramps begin; None if there are too many. The last element before a jump is a ramp of its own.

    A block at a time: what fits into a core's cache is looked at in a quarter of the time.
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
    """Would ``unpacked`` give these bits?"""
    bits = values.view(np.int64)
    for start in range(0, len(values), BLOCK):
        part = bits[start : start + BLOCK]
        with np.errstate(invalid="ignore", over="ignore"):
            ramp = np.arange(start, start + len(part)) * step
            ramp += values[0]
        if start == 0:
            ramp[0] = values[0]  # -0.0 and NaN stay what they are
        if not np.array_equal(ramp.view(np.int64), part):
            return False
    return True


@lru_cache(maxsize=2)  # the same one is asked for several times in a row
def unpacked(ramps: bytes, numel: int) -> np.ndarray | None:
    """The ``numel`` elements that ``packed`` was given, float64, read-only; None if these are not ramps of so many."""
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

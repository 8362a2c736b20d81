"""Whether a gradient in exact arithmetic is right up to rounding in its own dtype. Pure functions on recordings.

Special here: in exact arithmetic a gradient must equal the expected one, but correct code can still differ by rounding:
multiplying by 1/1000 or 3/7 rounds, and torch divides a GPU tensor by multiplying with a rounded reciprocal. A mistake
in whole numbers is larger, unless a few wrong elements are almost right. So an error counts as rounding if it is small
relative to its own element, or if many elements are off. A tag that is off by half the distance to its neighbour or
more may be the neighbour's, and does not pass. Rounding in float16 could hide a mistake, and is not accepted.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from verifier.judge.arithmetic import SINGLE, WIDE, contract_of, is_exact
from verifier.judge.inquiry import local_gradients
from verifier.recording import Recording, Tensor

ULPS = 16  # units in the last place: W terms scaled and added up, each a sum of about a hundred products
MANY = 0.1  # of the elements


def only_rounded(
    observed: np.ndarray, expected: np.ndarray, magnitude: np.ndarray | float = 0.0, largest: float = 0.0
) -> bool:
    """Return whether ``observed`` equals ``expected`` up to rounding in its dtype.

    The bound is ``ULPS`` of each element, or of the ``magnitude`` of its terms (one number, or one per element). If
    many elements are off, it is ``ULPS`` of the largest element, or of ``largest`` if that is known.
    """
    if observed.shape != expected.shape or str(observed.dtype) not in (*SINGLE, *WIDE):
        return False
    error, size = np.abs(observed - expected), np.maximum(np.abs(expected), magnitude)
    bound = ULPS * float(np.finfo(observed.dtype).eps)
    if not np.isfinite(error).all():
        return False
    if (error <= bound * size).all():
        return True
    many = np.count_nonzero(error) >= MANY * np.count_nonzero(expected)
    return bool(many and error.max() <= bound * max(largest, size.max(initial=0.0)))


def is_rounding(recording: Recording, step: int, name: str, observed: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether a gradient of ``name`` differs from the single process's (``expected``, times W for a sum) only by
    rounding. False unless the arithmetic is exact, where nothing else makes correct gradients differ.
    """
    if not is_exact(recording) or observed.shape != expected.shape:
        return False
    if recording.scenario.tagged and not np.abs(observed - expected).max(initial=0.0) < _half_a_tag(expected):
        return False
    local = [np.abs(gradient) for gradient in local_gradients(recording, step, name).values()]
    if local:
        return only_rounded(observed, expected, np.mean(local, axis=0))
    return only_rounded(observed, expected, largest=_largest(recording, step))


def _largest(recording: Recording, step: int) -> float:
    """The largest element of all gradients of ``step``: ranks' own gradients, not kept, may be as large and cancel."""
    assert recording.reference is not None
    gradients = [tensor.values for tensor in recording.reference.named("gradient", step).values()]
    return max((float(np.abs(g).max(initial=0.0)) for g in gradients if g is not None), default=0.0)


def rounded_in(recording: Recording) -> int | None:
    """The first step in which some rank's gradient, in exact arithmetic, is off by rounding; None if there is none."""
    if recording not in _found:
        steps = range(min(recording.scenario.num_steps, recording.scenario.keep_steps)) if is_exact(recording) else ()
        _found[recording] = next((step for step in steps if _rounds(recording, step)), None)
    return _found[recording]


_found: WeakKeyDictionary[Recording, int | None] = WeakKeyDictionary()


def _rounds(recording: Recording, step: int) -> bool:
    assert recording.reference is not None
    return any(
        _differs_by_roundings(recording, step, expected, rank.tensor("gradient", step, name))
        for name, expected in recording.reference.named("gradient", step).items()
        for rank in recording.ranks
    )


def _differs_by_roundings(recording: Recording, step: int, expected: Tensor, observed: Tensor | None) -> bool:
    if observed is None or observed.values is None or expected.values is None:
        return False
    summed = contract_of(recording).get("average") == "sum"
    wanted = expected.values * (recording.scenario.world_size if summed else 1)
    same = (observed.bits == expected.bits and not summed) or np.array_equal(observed.values, wanted)
    return not same and is_rounding(recording, step, expected.name, observed.values, wanted)


def _half_a_tag(expected: np.ndarray) -> float:
    return float(np.diff(np.unique(expected)).min(initial=np.inf)) / 2

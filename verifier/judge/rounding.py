"""Is a gradient of exact arithmetic right but for roundings of its own dtype? Pure functions on recordings.

Special here: equal means equal, and yet who multiplies by 1/1000, or by 3/7, is not wrong, and whoever divides a GPU's
tensor by a number does: torch multiplies it by the rounded reciprocal. A mistake of whole numbers is not as small, but
where few elements are wrong, and hold almost what they should. So roundings are as small as each element is, or else
they are in many places. And of tags, what is off by half the distance of two of them may be a neighbour's: that is not
let pass. Roundings of float16 are large enough to hide something, and are not looked for.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from verifier.judge.arithmetic import SINGLE, WIDE, contract_of, is_exact
from verifier.judge.inquiry import local_gradients
from verifier.recording import Recording, Tensor

ULPS = 16  # in the last place: W terms scaled and added up, and the hundred products that each of them is made of
MANY = 0.1  # of the elements


def only_rounded(
    observed: np.ndarray, expected: np.ndarray, magnitude: np.ndarray | float = 0.0, largest: float = 0.0
) -> bool:
    """Is ``observed`` what is ``expected``, of its shape, but for roundings of its dtype?

    ``ULPS`` of each element, or of the ``magnitude`` (one, or one for each) of the terms that it is a sum of; where
    many elements are off, of the largest, which may be known to be ``largest``.
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
    """The same of a gradient of ``name``, ``expected`` the single process's (times W, if it is a sum): in exact
    arithmetic, where nothing else makes them differ.
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
    """Of all gradients of ``step``: what ranks' own may have been, which are not kept, and may cancel to nothing."""
    assert recording.reference is not None
    gradients = [tensor.values for tensor in recording.reference.named("gradient", step).values()]
    return max((float(np.abs(g).max(initial=0.0)) for g in gradients if g is not None), default=0.0)


def rounded_in(recording: Recording) -> int | None:
    """The first step in which some rank's gradient, in exact arithmetic, is a rounding off; None: there is none."""
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

"""A gradient of which a part is the right mean and the rest a rank's own: some of it was in no collective.

Special here: it is asked element by element, and every one has to be the one or the other, so it is for the last of the
patterns. Of few wrong elements some may fit by chance, above all in exact arithmetic, where numbers are few.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import FINEST, ROUNDINGS, Cause, GradientEvidence

SURE_FROM = 3  # wrong elements
HINT = (
    "reduce all of a flat buffer, also where its length is no multiple of the ranks, or of the pieces that it is cut "
    "into (pad it, or send the rest as well), and copy all of the result back"
)


def in_part(e: GradientEvidence) -> Cause | None:
    """The rank's own, as it is or divided by the number of ranks, where the mean is not."""
    mine = e.local.get(e.rank)
    if e.agreed or e.world_size == 1 or mine is None or not mine.shape == e.observed.shape == e.expected.shape:
        return None
    if e.observed.dtype == np.float16:  # in which small elements are near to anything
        return None
    right = _near(e.observed, e.expected, e)
    for divisor, told in ((1, "own gradient"), (e.world_size, f"own gradient divided by {e.world_size}")):
        own = _near(e.observed, mine / divisor, e) & ~right
        if (right & (e.expected != 0)).any() and own.any() and (right | own).all():  # zeros are right by themselves
            return Cause(
                "reduced_in_part",
                0.9 if own.sum() >= SURE_FROM else 0.6,
                f"{_which(own)} rank {e.rank}'s {told}, and the others are the right mean: a part of the gradient was "
                "in no collective, or what came of it was not written back",
                HINT,
            )
    return None


def _near(a: np.ndarray, b: np.ndarray, e: GradientEvidence) -> np.ndarray:
    largest = max(float(np.abs(x).max(initial=0.0)) for x in (e.expected, *e.local.values()))
    near: np.ndarray = np.abs(a - b) <= ROUNDINGS.get(str(e.observed.dtype), FINEST) * largest
    return near


def _which(own: np.ndarray) -> str:
    """The wrong elements, in words, as they lie in memory."""
    number, flat = int(own.sum()), own.reshape(-1)
    at_the_end = bool(flat[-number:].all())
    if number == 1:
        return f"the last of {flat.size} elements is" if at_the_end else f"one of {flat.size} elements is"
    return f"the last {number} of {flat.size} elements are" if at_the_end else f"{number} of {flat.size} elements are"

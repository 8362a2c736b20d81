"""A gradient of which part is the right mean and the rest is the rank's own: some elements were in no collective.

Special here: every single element has to be one or the other, so this is among the last patterns. A few wrong elements
may fit by chance, above all in exact arithmetic, where there are few distinct numbers.
"""

from __future__ import annotations

import numpy as np

from verifier.judge.evidence import FINEST, ROUNDINGS, Cause, GradientEvidence

EXPLAINS = "LS201"  # failures of this check: `causes` reads it here
SURE_FROM = 3  # wrong elements
HINT = (
    "reduce all of a flat buffer, also where its length is no multiple of the ranks, or of the pieces that it is cut "
    "into (pad it, or send the rest as well), and copy all of the result back"
)


def in_part(e: GradientEvidence) -> Cause | None:
    """The cause if each element is the mean or the rank's own gradient (possibly divided by the world size)."""
    mine = e.local.get(e.rank)
    if e.agreed or e.world_size == 1 or mine is None or not mine.shape == e.observed.shape == e.expected.shape:
        return None
    if e.observed.dtype == np.float16:  # its tolerance makes small elements match anything
        return None
    right = _near(e.observed, e.expected, e)
    for divisor, told in ((1, "own gradient"), (e.world_size, f"own gradient divided by {e.world_size}")):
        own = _near(e.observed, mine / divisor, e) & ~right
        if (right & (e.expected != 0)).any() and own.any() and (right | own).all():  # zeros match anyway
            return Cause(
                "reduced_in_part",
                0.9 if own.sum() >= SURE_FROM else 0.6,
                f"{_which(own)} rank {e.rank}'s {told}, and the others are the right mean: a part of the gradient was "
                "in no collective, or its result was not written back",
                HINT,
            )
    return None


def _near(a: np.ndarray, b: np.ndarray, e: GradientEvidence) -> np.ndarray:
    largest = max(float(np.abs(x).max(initial=0.0)) for x in (e.expected, *e.local.values()))
    near: np.ndarray = np.abs(a - b) <= ROUNDINGS.get(str(e.observed.dtype), FINEST) * largest
    return near


def _which(own: np.ndarray) -> str:
    """A phrase for the wrong elements, by their place in memory."""
    number, flat = int(own.sum()), own.reshape(-1)
    at_the_end = bool(flat[-number:].all())
    if number == 1:
        return f"the last of {flat.size} elements is" if at_the_end else f"one of {flat.size} elements is"
    return f"the last {number} of {flat.size} elements are" if at_the_end else f"{number} of {flat.size} elements are"

"""Infinite loss: on the last rank the loss is infinite, by a constant, and no gradient is.

A strategy that skips a step for that has to agree on it with the other ranks.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    workload="exact",
    standard_where="a loss, or numbers that are none",
    fields={
        "infinite_loss": True,
        "small_buckets": True,
        "needs": ("non_finite_gradients",),
        "judged_by": ("LS101", "LS301", "LS601"),
    },
)

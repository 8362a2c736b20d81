"""Loss that is no number: on the last rank the loss is NaN, by a constant, and no gradient is.

As ``infinite_loss``, for those who ask ``isnan(loss)`` before a backward.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "infinite_loss": True,
        "spike": "nan",
        "small_buckets": True,
        "needs": ("non_finite_gradients",),
        "judged_by": ("LS101", "LS301", "LS601"),
    },
)

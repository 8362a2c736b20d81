"""NaN loss: the loss is NaN, by a constant, and no gradient is; on rank 0, the last rank, rank 0.

As ``infinite_loss``, for strategies that ask ``isnan(loss)`` before a backward, or let rank 0 ask for all.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    workload="exact",
    standard_where="a loss, or numbers that are none",
    fields={
        "num_steps": 6,
        "infinite_loss": True,
        "spike": "nan",
        "rank_0_first": True,
        "small_buckets": True,
        "needs": ("non_finite_gradients",),
        "judged_by": ("LS101", "LS202", "LS301", "LS601"),
    },
)

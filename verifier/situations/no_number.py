"""NaN: one gradient is NaN, as after 0/0 in the data; on rank 0, then on the last rank, then on all.

As ``overflow``, for strategies that look for NaN and not for infinity. A strategy that replaces it by zeros before the
sum hides it from the other ranks. A strategy that skips the step has to do so on every rank. A guard that asks rank 0
alone takes the step that has the last rank's NaN in it.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 6,
        "overflow": True,
        "spike": "nan",
        "rank_0_first": True,
        "small_buckets": True,
        "needs": ("non_finite_gradients",),
        "judged_by": ("LS101", "LS202", "LS601"),
    },
)

"""No number: on the last rank one gradient is NaN, as after 0/0 in its data. All have to come to the same.

As ``overflow``, for those who look for NaN and not for infinity: who takes zeros for it before the sum hides it from
whoever watches, and who leaves out the step has to do so on every rank.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 4,
        "overflow": True,
        "spike": "nan",
        "small_buckets": True,
        "needs": ("non_finite_gradients",),
        "judged_by": ("LS101", "LS202", "LS601"),
    },
)

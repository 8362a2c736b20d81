"""Overflow in half precision: as ``overflow``, where the infinite gradient belongs to a layer in float16.

Scalers look for infinities where they occur. A rank that looks only at its own gradients, before they are added up,
skips a step that other ranks take. In ``standard`` where the strategy's own text speaks of precision.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="half precision",
    workload="exact",
    repeat=False,
    fields={
        "dtypes": ("float16",),
        "num_steps": 4,
        "overflow": True,
        "small_buckets": True,
        "needs": ("non_finite_gradients", "mixed_dtypes"),
        "judged_by": ("LS101", "LS202", "LS601"),
    },
)

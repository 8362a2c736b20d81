"""Unused parameters in float32: as ``unused``, for strategies that refuse float64, which would otherwise not be asked.

The first of two steps is judged, and is exact. The second is there for strategies that raise only then for a missing
gradient.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="routed",
    fields={
        "dtypes": ("float32",),
        "num_steps": 2,
        "keep_steps": 1,
        "small_buckets": True,
        "needs": ("unused_parameters",),
    },
)

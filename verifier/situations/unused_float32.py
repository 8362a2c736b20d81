"""Unused parameters in float32: as ``unused``, for those who refuse float64, and whom nobody would ask otherwise.

The first of two steps is judged, which is exact; the second is there for those who say no more than then that they have
missed something.
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

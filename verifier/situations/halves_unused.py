"""Halves that a rank does not use: as ``unused``, where the branches are in float16 and bfloat16.

A strategy that keeps half-precision parameters apart has lists of its own, and a rank may have nothing to bring to one
of them. In ``standard`` where the strategy's own text speaks of precision.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="half precision",
    workload="routed",
    repeat=False,
    fields={
        "dtypes": ("float16", "bfloat16", "float16"),
        "num_steps": 2,
        "keep_steps": 1,
        "small_buckets": True,
        "needs": ("unused_parameters", "mixed_dtypes"),
    },
)

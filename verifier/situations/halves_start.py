"""Halves at the start: parameters in half precision, built with other numbers on every rank.

The float32 copies from which an optimizer trains are often made before replicas are equal: weights agree in the first
forward, and not after the first step. In ``standard`` where the strategy's own text speaks of precision.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="half precision",
    order=15,
    workload="layers",
    repeat=False,
    fields={
        "dtypes": ("float32", "float16", "bfloat16"),
        "same_start": False,
        "num_steps": 2,
        "judged_by": ("LS001", "LS101", "LS301"),
        "small_buckets": True,
        "needs": ("mixed_dtypes", "broadcasts_at_start"),
    },
)

"""Halves that earlier micro-batches alone use: as ``unused_accumulated``, where branches are in float16 and bfloat16.

A strategy that keeps float32 sums of half-precision gradients has to bring the sums of parameters that the last
backward did not use, too. In ``standard`` where the strategy's own text speaks of precision.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="half precision",
    workload="routed",
    order=65,
    repeat=False,
    fields={
        "dtypes": ("float16", "bfloat16", "float16"),
        "num_steps": 2,
        "keep_steps": 1,
        "num_micro_batches": 2,
        "small_buckets": True,
        "needs": ("unused_parameters", "mixed_dtypes", "accumulation"),
    },
)

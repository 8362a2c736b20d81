"""Halves that are tied, and a dropped batch: gradients that accumulate beside ``.grad``, in another dtype.

Main gradients in float32 are added up by hooks, and a weight with two names may have its hook twice. What
``zero_grad()`` does not know of is not thrown away. In ``standard`` where the strategy's own text speaks of precision.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="half precision",
    workload="layers",
    repeat=False,
    fields={
        "dtypes": ("float32", "float16", "float16", "bfloat16", "bfloat16"),
        "tied": True,
        "num_steps": 2,
        "drop_before": 1,
        "small_buckets": True,
        "needs": ("mixed_dtypes", "odd_parameters", "dropped_batches"),
    },
)

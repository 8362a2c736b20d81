"""Complex: real and complex parameters in one model. Both parts of a complex gradient must be averaged."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="layers",
    fields={
        "dtypes": ("float32", "complex64", "complex128"),
        "num_steps": 2,
        "small_buckets": True,
        "needs": ("complex_parameters",),
    },
)

"""Complex under AdamW: real and complex parameters, and an optimizer that keeps moments of both their parts.

A strategy that shards its optimizer's state lays complex numbers out as pairs of real ones, or leaves one of the two
out. In ``standard`` where the strategy's own text speaks of complex numbers.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="complex numbers",
    workload="layers",
    order=65,
    repeat=False,
    fields={
        "dtypes": ("float64", "complex128"),
        "num_steps": 3,
        "optimizer": "adamw",
        "small_buckets": True,
        "needs": ("complex_parameters",),
    },
)

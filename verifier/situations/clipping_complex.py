"""Clipping with complex parameters: the norm counts both parts of every number.

A norm of the strategy's own that squares a number, and does not take its absolute value first, is not one: a square of
an imaginary number is negative. In ``standard`` where the strategy's own text speaks of complex numbers.
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
        "num_steps": 2,
        "clip_norm": 0.05,
        "small_buckets": True,
        "needs": ("complex_parameters", "clipping"),
    },
)

"""Complex start: real and complex parameters, built with other numbers on every rank.

A weight that is neither a floating point number (by ``is_floating_point()``) nor an integer is easily left out. In
``standard`` where the strategy's own text speaks of complex numbers, or calls ``is_floating_point()``.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="complex numbers",
    order=15,
    workload="layers",
    repeat=False,
    fields={
        "dtypes": ("float32", "complex64", "complex128"),
        "same_start": False,
        "judged_by": ("LS001", "LS301"),
        "small_buckets": True,
        "needs": ("complex_parameters", "broadcasts_at_start"),
    },
)

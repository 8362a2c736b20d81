"""Unused parameters in column-major layout: as ``unused``, where zeros of the same shape lie otherwise in memory.

A rank that did not use such a weight brings zeros in its place, and its result has the layout of those zeros.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="routed",
    repeat=False,
    fields={
        "column_major": True,
        "num_steps": 2,
        "small_buckets": True,
        "needs": ("unused_parameters", "strided_parameters", "float64"),
    },
)

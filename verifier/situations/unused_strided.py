"""Unused parameters in column-major layout: as ``unused``, where zeros of the same shape lie otherwise in memory.

A rank that did not use such a weight brings zeros in its place, and its result has the layout of those zeros. In
``standard`` where the strategy's own text makes tensors of a shape.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="tensors that it makes by a shape",
    workload="routed",
    repeat=False,
    fields={
        "column_major": True,
        "num_steps": 2,
        "small_buckets": True,
        "needs": ("unused_parameters", "strided_parameters", "float64"),
    },
)

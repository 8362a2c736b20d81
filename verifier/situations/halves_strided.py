"""Halves in column-major order: parameters in half precision whose memory is not in row-major order.

Float32 copies of them are often made, and written back, by views. A view of a tensor that is not contiguous may be
another tensor. In ``standard`` where the strategy's own text speaks of precision.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="half precision",
    workload="layers",
    repeat=False,
    fields={
        "dtypes": ("float32", "float16", "bfloat16"),
        "column_major": True,
        "num_steps": 2,
        "small_buckets": True,
        "needs": ("mixed_dtypes", "strided_parameters"),
    },
)

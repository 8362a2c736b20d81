"""Mixed dtypes: float32, float64, bfloat16 and float16 parameters in one model, each held to its own rounding.

Every weight has more than 2048 elements. float16 cannot represent all of their positions, and bfloat16 cannot represent
most of them.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="layers",
    fields={
        "dtypes": ("float32", "float64", "bfloat16", "float16"),
        "num_steps": 2,
        "width": 46,
        "small_buckets": True,
        "needs": ("mixed_dtypes",),
    },
)

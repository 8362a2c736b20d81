"""Mixed dtypes: float32, float64, bfloat16 and float16 parameters in one model, each held to its own rounding."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard", workload="layers", fields={"num_steps": 2, "small_buckets": True, "needs": ("mixed_dtypes",)}
)

"""Autocast: float32 parameters, forwards in bfloat16 where torch's rules say so; gradients are float32 all the same.

The rule is thread-local. A wrapper that runs the model somewhere else than its caller loses it, and says nothing.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="layers",
    fields={"dtypes": ("float32",) * 3, "num_steps": 2, "autocast": True, "small_buckets": True},
)

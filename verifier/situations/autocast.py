"""Autocast: float32 parameters, forwards in bfloat16 where torch's rules say so; gradients are still float32.

The autocast state is thread-local. A wrapper that runs the model in another thread than its caller loses it, without an
error.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="layers",
    fields={"dtypes": ("float32",) * 3, "num_steps": 2, "autocast": True, "small_buckets": True},
)

"""Clipping: the norm of the synchronised gradients is clipped before the step, and the clip is active."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={"num_steps": 2, "clip_norm": 0.05, "small_buckets": True, "needs": ("clipping", "float64")},
)

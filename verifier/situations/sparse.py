"""Sparse: an embedding with sparse gradients beside dense layers, for two steps."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="sparse",
    fields={"num_steps": 2, "small_buckets": True, "needs": ("sparse_gradients", "float64")},
)

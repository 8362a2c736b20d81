"""Accumulation: four micro-batches in exact arithmetic, three of them under ``no_sync``."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"num_micro_batches": 4, "small_buckets": True, "needs": ("accumulation",)},
)

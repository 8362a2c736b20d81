"""Checkpointed: blocks under activation checkpointing, whose hooks fire while a forward is run again."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="checkpointed",
    samples_per_micro_batch=2,
    fields={"num_steps": 2, "small_buckets": True, "needs": ("checkpointing", "float64")},
)

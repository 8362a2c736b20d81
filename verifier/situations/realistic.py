"""Realistic: a small Llama in float64, three steps of SGD with momentum, two micro-batches each under ``no_sync``."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="quick",
    order=40,
    workload="llama",
    samples_per_micro_batch=2,
    fields={"num_steps": 3, "num_micro_batches": 2, "small_buckets": True, "needs": ("accumulation", "float64")},
)

"""Dropped micro-batch: after one under ``no_sync``, gradients are thrown away by ``zero_grad()``, and a step begins.

Loops do this if they meet a spike, or run out of memory, before the last micro-batch of a step. What a wrapper has
accumulated beside ``.grad`` until it synchronises has to be thrown away, too. Not tried without a ``no_sync()``, nor
under torch's ``fully_shard``, which keeps it.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    workload="exact",
    standard_where="no_sync(), or what it accumulates",
    fields={
        "num_steps": 2,
        "drop_quiet_before": 1,
        "small_buckets": True,
        "needs": ("dropped_batches", "accumulation", "float64"),
    },
)

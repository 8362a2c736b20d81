"""Accumulation: four micro-batches, three of them under ``no_sync``; amid them, an evaluation and a checkpoint.

Loops that validate or save every so many batches, or when they are told to end, do not wait for a step's end. What was
accumulated must be there after it. The state is not asked for where it is not claimed that there is any.

In float64, and not in exact arithmetic: a strategy without a ``no_sync()`` averages four times, and a third of a third
is not exact.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_micro_batches": 4,
        "evaluate_amid": True,
        "save_amid": True,
        "small_buckets": True,
        "needs": ("accumulation", "float64"),
    },
)

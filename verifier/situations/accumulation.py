"""Accumulation: four micro-batches, three of them under ``no_sync``; between them an evaluation and a checkpoint.

Loops that validate or save every so many batches, or when they are stopped, do not wait for a step's end. The
accumulated gradients must still be there afterwards. The checkpoint is left out where ``state_dict`` is disclaimed or
missing.

The step before takes all four as one batch: a window that is longer than the first one was. What a strategy counted in
its first step does not hold any more.

The arithmetic is float64 and not exact: a strategy without a ``no_sync()`` averages four times, and a third of a third
is not exact.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 2,
        "num_micro_batches": 4,
        "whole_steps": (0,),
        "evaluate_amid": True,
        "save_amid": True,
        "small_buckets": True,
        "needs": ("accumulation", "float64"),
    },
)

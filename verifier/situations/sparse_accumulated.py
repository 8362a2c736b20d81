"""Sparse and accumulated: sparse gradients, two micro-batches, the first under ``no_sync``.

The first micro-batch leaves a sparse gradient, to which a dense or sparse one is added.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=65,
    workload="sparse",
    fields={
        "num_micro_batches": 2,
        "small_buckets": True,
        "needs": ("sparse_gradients", "accumulation", "float64"),
    },
)

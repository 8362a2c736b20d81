"""Oddities accumulated: the same parameters, two micro-batches, the first under ``no_sync``.

A weight under two names, or used twice, has two parts to its gradient in each micro-batch. A scalar cannot be a view of
anything.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=65,
    workload="oddities",
    fields={
        "num_micro_batches": 2,
        "small_buckets": True,
        "needs": ("odd_parameters", "accumulation", "float64"),
    },
)

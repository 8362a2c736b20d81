"""Strided and accumulated: parameters in other layouts, two micro-batches, the first under ``no_sync``.

The accumulated gradient lies in memory as the parameter does, or as the bucket does, and the two must be told apart.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=65,
    workload="strided",
    fields={
        "num_micro_batches": 2,
        "small_buckets": True,
        "needs": ("strided_parameters", "accumulation", "float64"),
    },
)

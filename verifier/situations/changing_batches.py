"""Changing batches: two micro-batches, then one batch of twice the size, then two again, in float32.

What a strategy learned in the first step no longer holds: the number of backwards, and the number of rows.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="layers",
    samples_per_micro_batch=2,
    fields={
        "dtypes": ("float32",) * 3,
        "num_steps": 3,
        "num_micro_batches": 2,
        "whole_steps": (1,),
        "small_buckets": True,
        "needs": ("accumulation",),
    },
)

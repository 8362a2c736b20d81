"""Two backwards before one step, without ``no_sync()``: each may synchronise, and the sum must be right.

The gradient then holds both what was averaged already and what this rank has added since. The mean of that is right;
the mean of the second backward's share alone is not.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_micro_batches": 2,
        "use_no_sync": False,
        "small_buckets": True,
        "needs": ("accumulation", "two_backwards", "float64"),
    },
)

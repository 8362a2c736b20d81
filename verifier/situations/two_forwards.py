"""Two forwards, then a backward for each, without ``no_sync()``.

torch's DDP diverges here without an error, so only strategies that claim ``two_forwards`` are tried.
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
        "forwards_first": True,
        "small_buckets": True,
        "only_if_claimed": ("two_forwards",),
        "needs": ("float64",),
    },
)

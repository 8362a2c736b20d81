"""An exception leaves ``no_sync()``; the loop catches it, and the next step must be synchronised as ever."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 3,
        "raise_before": 2,
        "small_buckets": True,
        "judged_by": ("LS401", "LS502"),  # LS401: a write to a tensor in flight is not about no_sync(), and is reported
        "needs": ("float64",),
    },
)

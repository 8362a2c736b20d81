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
        "judged_by": ("LS401", "LS502"),  # what is written to in flight is no matter of no_sync(), and has to be told
        "needs": ("float64",),
    },
)

"""Loose forwards: two whose losses are summed, one without gradients, the only backward; then one that none follows.

As where two views of a sample are compared, where figures for the log are taken before the backward, and where a loop
drops the loss of a bad batch. Who counts forwards to know when the last backward has come is wrong from there on, and
so is who decides in each forward whether the backward synchronises.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 2,
        "num_micro_batches": 2,
        "use_no_sync": False,
        "forwards_first": True,
        "one_backward": True,
        "glance": True,
        "dropped_before": 1,
        "small_buckets": True,
        "needs": ("loose_forwards", "float64"),
    },
)

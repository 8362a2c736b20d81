"""Broken forward: half-way in the model a forward raises, on every rank; the loop catches that, and goes on.

As loops do where a batch does not fit into memory. What a wrapper sets up in its forward, or counts there, has to be as
it was before: hooks that are armed, weights that are put together, whether the next backward is to synchronise.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 2,
        "break_before": 1,
        "small_buckets": True,
        "needs": ("dropped_batches", "loose_forwards", "float64"),
    },
)

"""Broken forward: half-way in the model a forward raises, on every rank; the loop catches that, and goes on.

Loops do this where a batch does not fit into memory. Everything that a wrapper sets up or counts in its forward has to
be as it was before: hooks that are armed, weights that are gathered, whether the next backward synchronises.
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

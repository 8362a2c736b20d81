"""Dropped batch: after a backward, gradients are thrown away by ``zero_grad()``, and the next batch is taken.

Loops do this after a spike, or where a loss scaler has met an infinity. What a wrapper keeps beside ``.grad`` (main
gradients, flat buffers, counters of what is ready) has to be as it was before. Nothing is dropped where weights move in
the backward itself.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 2,
        "drop_before": 1,
        "small_buckets": True,
        "needs": ("dropped_batches", "float64"),
    },
)

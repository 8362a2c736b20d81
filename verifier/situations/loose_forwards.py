"""Loose forwards: two with summed losses, one without gradients, the only backward; then one that no backward follows.

Loops do this where they compare two views of a sample, where they compute figures for the log before the backward, and
where they drop the loss of a bad batch. A strategy that counts forwards to know which backward is the last is wrong
from then on, and so is one that decides in each forward whether the backward synchronises.
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

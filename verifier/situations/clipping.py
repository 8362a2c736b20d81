"""Clipping: the norm of the synchronised gradients is clipped before the step.

In the first and third step the norm is larger than the limit. In the second step the limit is far larger, and nothing
is clipped.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 3,
        "clip_norm": 0.05,
        "loose_clip_in": (1,),
        "small_buckets": True,
        "needs": ("clipping", "float64"),
    },
)

"""Unused parameters: each rank's samples take one of the branches, in turn; no rank uses one of the parameters.

There are two steps, because torch's DDP raises only at the second forward (its first step is silently wrong). There is
weight decay, because a gradient of zeros is not the same as none.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="quick",
    order=60,
    workload="routed",
    fields={"num_steps": 2, "weight_decay": 0.5, "small_buckets": True, "needs": ("unused_parameters", "float64")},
)

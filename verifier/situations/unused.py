"""Unused parameters: each rank's samples take one of the branches, in turn; one parameter is used by nobody.

Two steps, because torch's DDP says so only at the second forward (its first step is silently wrong); with weight decay,
because a gradient of zeros is not the same as none.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="quick",
    order=60,
    workload="routed",
    fields={"num_steps": 2, "weight_decay": 0.5, "small_buckets": True, "needs": ("unused_parameters", "float64")},
)

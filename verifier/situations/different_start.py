"""Different start: every rank draws its own initial weights and buffers. A wrapper must make the replicas equal.

Judged by LS001 and LS002 alone: whatever is wrong at the start is wrong ever after, and would drown what comes later.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="quick",
    order=10,
    workload="exact",
    fields={
        "same_start": False,
        "judged_by": ("LS001", "LS002"),
        "small_buckets": True,
        "needs": ("broadcasts_at_start",),
    },
)

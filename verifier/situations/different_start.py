"""Different start: every rank draws its own initial weights and buffers. A wrapper must make the replicas equal.

Judged by LS001 and LS002: whatever is wrong at the start is wrong ever after, and would drown what comes later. And by
LS101 where the first forward found replicas equal: an optimizer that was made before they were may hold other numbers.
And by LS301: in what order ranks talk does not depend on what they hold, and who dies or hangs of it here would else
leave nothing to judge.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="quick",
    order=10,
    workload="exact",
    fields={
        "same_start": False,
        "judged_by": ("LS001", "LS002", "LS101", "LS301"),
        "small_buckets": True,
        "needs": ("broadcasts_at_start",),
    },
)

"""Different start: every rank draws its own initial weights and buffers. A wrapper must make the replicas equal.

Judged by LS001 and LS002: what is wrong at the start stays wrong, and would hide everything later. LS101 judges it,
too, where the first forward found replicas equal: an optimizer that was made before they were equal may hold other
numbers. LS301 judges it because the order of collectives does not depend on what the ranks hold, and a rank that dies
or hangs here would leave nothing else to judge.
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

"""Start on several nodes: as different_start, where ranks are told that they are on several nodes.

If the rank whose LOCAL_RANK is 0 sends the weights, they have as many origins as there are nodes.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=15,
    workload="exact",
    fields={
        "several_nodes": True,
        "same_start": False,
        "judged_by": ("LS001", "LS002", "LS101", "LS301"),
        "small_buckets": True,
        "needs": ("broadcasts_at_start",),
    },
)

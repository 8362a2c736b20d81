"""Unfrozen: a layer that was frozen when the model was wrapped is trained from the second of two steps on.

The optimizer has its parameters from the start. A strategy that listed what to reduce then does not have them on the
list. It follows or refuses the change, and never ignores it.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 2,
        "change_after": 0,
        "change": "unfreeze",
        "small_buckets": True,
        "needs": ("following_changes", "float64"),
        "only_if_claimed": ("changes_after_wrap",),
    },
)

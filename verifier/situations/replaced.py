"""Replaced: after the first of two steps a layer makes way for a new one, and the optimizer is made anew.

A head is exchanged like this for another task. The new parameters have none of the hooks that the old ones had. A
strategy follows or refuses the change, and never ignores it.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 2,
        "change_after": 0,
        "change": "replace",
        "small_buckets": True,
        "needs": ("following_changes", "float64"),
        "only_if_claimed": ("changes_after_wrap",),
    },
)

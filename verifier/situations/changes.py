"""Changes: a layer is frozen after the first of two steps. A strategy follows or refuses it, and never ignores it."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 2,
        "change_after": 0,
        "small_buckets": True,
        "needs": ("following_changes", "float64"),
        "only_if_claimed": ("changes_after_wrap",),
    },
)

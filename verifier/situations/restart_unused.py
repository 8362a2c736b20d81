"""Restart with parameters that nobody has used yet: an optimizer has no state of those when the run is saved.

Who saves the states in a row, and gives them back by place, gives them to others. They are used first after the
restart, and have taken fewer steps than others then. But for the restart it is ``unused_adamw``: what is wrong there as
well is no matter of saving.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="routed",
    fields={
        "num_steps": 6,
        "optimizer": "adamw",
        "resume_after": 1,
        "built_first": True,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "unused_parameters", "float64"),
        "judged_by": ("LS504",),
    },
)

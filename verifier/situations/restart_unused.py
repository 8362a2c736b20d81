"""Restart with unused parameters: an optimizer has no state of parameters that nobody has used when the run is saved.

A strategy that saves the states in a row, and returns them by place, gives them to other parameters. These parameters
are first used after the restart, and have then taken fewer steps than others. Without the restart it is
``unused_adamw``: what is wrong there as well is not caused by saving.
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

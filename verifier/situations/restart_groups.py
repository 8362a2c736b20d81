"""Restart with groups: as ``restart``, with two groups of parameters whose options have to come back as they were.

A situation of its own: who refuses groups is still asked whether its state is loaded into what was built before.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="saved",
    fields={
        "num_steps": 4,
        "optimizer": "adamw",
        "groups": True,
        "resume_after": 1,
        "built_first": True,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "odd_parameters", "parameter_groups", "float64"),
        "judged_by": ("LS504",),
    },
)

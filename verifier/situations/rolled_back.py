"""Rolled back: what was saved after two of three steps is loaded into a model and an optimizer that have trained.

A run does this that goes back to its best checkpoint, or to the last one before a spike. What a strategy sets up in the
first step (master weights, flat buffers, moments) has to follow what is loaded, however late that comes.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="saved",
    fields={
        "num_steps": 3,
        "resume_after": 1,
        "built_first": True,
        "stepped_first": True,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "odd_parameters", "float64"),
        "judged_by": ("LS504",),
    },
)

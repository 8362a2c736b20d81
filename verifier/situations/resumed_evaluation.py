"""Resumed evaluation: what was saved is loaded, and before any further step the model is evaluated.

A script does this that only measures a checkpoint. If a wrapper evaluates something other than the weights that it
trains (a copy, a cache, a narrower dtype), it has to match the loaded weights. The same evaluation comes before the
save: a strategy that is wrong there already is left to ``evaluation``.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="saved",
    fields={
        "num_steps": 2,
        "evaluate_after": (0, 1),
        "resume_after": 1,
        "built_first": True,
        "small_buckets": True,
        "needs": ("evaluation", "state_dict", "broadcasts_at_start", "odd_parameters", "float64"),
        "judged_by": ("LS504",),
    },
)

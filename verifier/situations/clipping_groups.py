"""Clipping with groups: two micro-batches, two groups of parameters, and one norm of all gradients of the step.

A norm that is taken of the first group, or of each group by itself, is another.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="saved",
    fields={
        "num_steps": 1,
        "num_micro_batches": 2,
        "groups": True,
        "clip_norm": 0.05,
        "small_buckets": True,
        "needs": (
            "clipping",
            "parameter_groups",
            "accumulation",
            "odd_parameters",
            "float64",
        ),
        "judged_by": ("LS201",),
    },
)

"""Clipping with groups: AdamW, two micro-batches, three groups of parameters, and one norm of all the step's gradients.

The norm of the first group, or a norm for each group, is another norm. AdamW's steps hardly show whether its gradients
were clipped, so a clipping that is left out for some kinds of optimizers is seen in the gradients.
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
        "optimizer": "adamw",
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

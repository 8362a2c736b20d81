"""Restart with groups: as ``restart``, with three groups of parameters whose options must come back as they were.

It was saved once before. The optimizer's order is not the model's, and it also holds frozen parameters, which have no
state. A strategy that puts states in a row by one order, and takes them out by another, gives parameters the states of
others. It is its own situation so that a strategy that refuses groups is still asked to load its state into what was
built before.

In ``standard`` where the strategy's own text has to do with optimizers, or there is none to read.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="anything of an optimizer, or no text to read",
    workload="saved",
    fields={
        "num_steps": 5,
        "optimizer": "adamw",
        "groups": True,
        "frozen_too": True,
        "save_after": 0,
        "resume_after": 2,
        "built_first": True,
        "small_buckets": True,
        "needs": (
            "state_dict",
            "broadcasts_at_start",
            "odd_parameters",
            "parameter_groups",
            "float64",
        ),
        "judged_by": ("LS202", "LS504"),
    },
)

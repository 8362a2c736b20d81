"""Restart twice: what has been loaded is saved again before the next step, and loaded into yet another replica.

A job that is cut off soon after it was resumed does this, and so does a script that converts a checkpoint. A wrapper
that adds a prefix whenever it saves, a count that is added to what was loaded, and a state that waits for the next step
before it is put where ``state_dict()`` reads it: all are right after one restart, and wrong after two.

In ``standard`` where the strategy's own text defines a ``state_dict()`` or a ``load_state_dict()``.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a state_dict() of its own",
    workload="saved",
    fields={
        "num_steps": 4,
        "optimizer": "adamw",
        "resume_after": 1,
        "resumed_twice": True,
        "built_first": True,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "odd_parameters", "float64"),
        "judged_by": ("LS503", "LS504"),
    },
)

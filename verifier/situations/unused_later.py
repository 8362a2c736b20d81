"""Unused until later: twenty-eight steps, and a branch that no rank uses before the last but one.

A strategy that records what is used in the first steps, and does not look again, leaves it out. In ``standard`` where
the strategy's own text speaks of what happens every few steps.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="something every few steps",
    workload="routed",
    order=65,
    repeat=False,
    fields={
        "num_steps": 28,
        "new_lr_after": (0, 1, 2, 3),
        "small_buckets": True,
        "needs": ("unused_parameters", "schedules", "float64"),
    },
)

"""Unused elsewhere: one rank uses every parameter, and others do not use all: first rank 0, then the last rank.

A strategy may ask the other ranks about what is unused only where a rank has something to ask. The rank that lacks
nothing then goes on, and the others wait for it, or take its next message for an answer. So it is with torch's DDP
without ``find_unused_parameters``, which raises on the others alone: only tried where the claim is made by name.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    workload="routed",
    fields={
        "depth": 2,
        "num_steps": 2,
        "small_buckets": True,
        "needs": ("unused_parameters", "float64"),
        "only_if_claimed": ("unused_parameters",),
    },
)

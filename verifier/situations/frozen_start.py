"""Frozen start: a model most of which is frozen, built with other numbers on every rank.

Judged by LS002 alone: what is not trained never comes to agree by itself, and gradients are means over different
models.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=15,
    workload="oddities",
    fields={
        "same_start": False,
        "judged_by": ("LS002",),
        "small_buckets": True,
        "needs": ("odd_parameters", "broadcasts_at_start", "float64"),
    },
)

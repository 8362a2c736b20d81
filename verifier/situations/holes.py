"""Holes: a parameter that is a column of a larger matrix, built with other numbers on every rank.

gloo's broadcast moves the first numbers of its memory, not the column, without an error (`lockstep doctor` shows it).
Any strategy that broadcasts parameters as they are fails on gloo, torch's own ZeroRedundancyOptimizer included. So only
strategies that claim ``holes_in_memory`` are tried here.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=70,
    workload="holes",
    fields={
        "same_start": False,
        "judged_by": ("LS001",),
        "small_buckets": True,
        "needs": ("broadcasts_at_start", "float64"),
        "only_if_claimed": ("holes_in_memory",),
    },
)

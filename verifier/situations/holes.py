"""Holes: a parameter that is a column of a larger matrix, built with other numbers on every rank.

gloo's broadcast moves the first numbers of its memory, not the column, and says nothing (`lockstep doctor` shows it);
who broadcasts parameters as they are is caught by it on gloo, torch's own ZeroRedundancyOptimizer included. So only
what claims ``holes_in_memory`` is put through it.
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

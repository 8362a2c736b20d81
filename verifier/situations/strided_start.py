"""Strided start: parameters with holes in their memory, built with other numbers on every rank.

gloo's broadcast of a column of a matrix moves the first numbers of its memory, not the column, and says nothing.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=15,
    workload="strided",
    fields={
        "same_start": False,
        "judged_by": ("LS001",),
        "small_buckets": True,
        "needs": ("strided_parameters", "broadcasts_at_start"),
    },
)

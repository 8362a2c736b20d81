"""Strided start: a model in column-major and channels-last layout, built with other numbers on every rank.

What is sent is often a copy in row-major order, of a weight or of a buffer; who forgets to copy back what came leaves
those alone that are laid out otherwise.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=15,
    workload="strided",
    fields={
        "same_start": False,
        "judged_by": ("LS001", "LS002", "LS301"),
        "small_buckets": True,
        "needs": ("strided_parameters", "broadcasts_at_start", "float64"),
    },
)

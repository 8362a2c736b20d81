"""Strided start: a model in column-major and channels-last layout, built with other numbers on every rank.

A weight or a buffer is often sent as a copy in row-major order. A strategy that forgets to copy back what arrived
leaves tensors of other layouts unchanged.
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

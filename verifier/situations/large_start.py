"""Large start: two branches with a weight of more than 2^20 elements each, and other numbers in them on every rank.

A start that is sent in pieces may lose its last piece, or put the pieces in another order. In ``standard`` where the
strategy's own text asks for the size of a tensor, or cuts one into pieces.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="the sizes of tensors",
    workload="branches",
    samples_per_micro_batch=1,
    order=80,
    repeat=False,
    most_ranks=8,
    fields={
        "same_start": False,
        "depth": 2,
        "width": 1026,
        "judged_by": ("LS001", "LS301"),
        "needs": ("broadcasts_at_start", "float64"),
    },
)

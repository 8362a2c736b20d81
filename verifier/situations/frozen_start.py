"""Frozen start: a model most of which is frozen, built with other numbers on every rank.

Judged by LS001 and LS002, and by LS301 as different_start is: frozen weights never become equal by themselves, and
gradients would be means over different models. The first forward is that of a first micro-batch, under ``no_sync()``
where there is one: replicas have to be equal by then.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=15,
    workload="oddities",
    fields={
        "same_start": False,
        "num_micro_batches": 2,
        "judged_by": ("LS001", "LS002", "LS301"),
        "small_buckets": True,
        "needs": ("odd_parameters", "broadcasts_at_start", "float64"),
    },
)

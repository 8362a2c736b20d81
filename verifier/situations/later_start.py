"""Later start: every rank draws its own initial weights, and there are twenty-four steps after that.

Slow weights, averages and anchors are often copied before replicas are equal, and are used only some steps later. In
``standard`` where the strategy's own text speaks of what happens every few steps.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="something every few steps",
    order=15,
    workload="branches",
    samples_per_micro_batch=1,
    repeat=False,
    fields={
        "same_start": False,
        "num_steps": 24,
        "depth": 2,
        "judged_by": ("LS001", "LS101", "LS301"),
        "small_buckets": True,
        "needs": ("broadcasts_at_start", "float64"),
    },
)

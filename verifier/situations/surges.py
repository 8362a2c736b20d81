"""Surges: after twenty quiet steps the last rank's gradients are 36 times as long in one step, and later less and less.

A strategy that guards against outliers skips or clips a step whose gradients are far longer than they used to be. A
guard that looks at each rank's own gradients does so on that rank alone, and replicas must stay equal. In ``standard``
where the strategy's own text speaks of outliers, thresholds or skipped steps.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="outliers, or steps that it skips",
    workload="branches",
    samples_per_micro_batch=1,
    order=66,
    repeat=False,
    fields={
        "num_steps": 64,
        "keep_steps": 1,
        "depth": 3,
        "surges": True,
        "small_buckets": True,
        "needs": ("float64",),
        "judged_by": ("LS101", "LS601"),
    },
)

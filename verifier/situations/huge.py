"""Huge: three branches whose weights are each a little larger than a bucket of the usual 25 MiB.

A strategy that fills buckets up to a cap needs a rule for a single parameter above it.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    order=81,
    workload="branches",
    samples_per_micro_batch=1,
    repeat=False,
    most_ranks=4,
    fields={"tagged": True, "depth": 3, "width": 1811, "needs": ("float64",)},
)

"""Many: two hundred small parameters, in another order on each rank."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    order=80,
    workload="branches",
    samples_per_micro_batch=1,
    repeat=False,
    fields={"tagged": True, "depth": 100, "small_buckets": True, "needs": ("float64",)},
)

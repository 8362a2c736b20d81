"""Branch order: gradients become ready in another order on each rank, and each carries the code of its parameter."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="quick",
    order=30,
    workload="branches",
    fields={"tagged": True, "small_buckets": True, "needs": ("branch_order",)},
)

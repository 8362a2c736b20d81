"""Sparse crossings: sparse lookups beside dense layers, in an order that differs from rank to rank, for two steps.

A strategy may gather sparse gradients as they arrive, and reduce only the dense ones in one order. In ``standard``
where the strategy's own text speaks of sparse gradients.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="sparse gradients",
    workload="crossings",
    fields={"num_steps": 2, "small_buckets": True, "needs": ("branch_order", "sparse_gradients", "float64")},
)

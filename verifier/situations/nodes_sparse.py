"""Sparse gradients on several nodes: as ``sparse``, where ranks are told that they are on several nodes.

A strategy that reduces within a node first, and between nodes later, has to send sparse gradients both ways. In
``standard`` where the strategy's own text speaks of local ranks, or makes groups.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="local ranks, or groups that it makes",
    workload="sparse",
    repeat=False,
    fields={
        "num_steps": 2,
        "several_nodes": True,
        "small_buckets": True,
        "needs": ("sparse_gradients", "float64"),
    },
)

"""Overflow on several nodes: as ``overflow``, where ranks are told that they are on several nodes.

A strategy that asks only the ranks of its own node whether something is infinite skips a step that other nodes take. In
``standard`` where the strategy's own text speaks of local ranks, or makes groups.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="local ranks, or groups that it makes",
    workload="exact",
    repeat=False,
    fields={
        "num_steps": 4,
        "overflow": True,
        "several_nodes": True,
        "small_buckets": True,
        "needs": ("non_finite_gradients",),
        "judged_by": ("LS101", "LS202", "LS601"),
    },
)

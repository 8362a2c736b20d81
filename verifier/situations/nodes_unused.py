"""Unused parameters on several nodes: as ``unused``, where ranks are told that they are on several nodes.

The parameters used on a node are not those used in the job: nodes that go by their own lists pair different
collectives. In ``standard`` where the strategy's own text speaks of local ranks, or makes groups.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="local ranks, or groups that it makes",
    workload="routed",
    repeat=False,
    fields={
        "num_steps": 2,
        "several_nodes": True,
        "small_buckets": True,
        "needs": ("unused_parameters", "float64"),
    },
)

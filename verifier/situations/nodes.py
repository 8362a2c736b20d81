"""Nodes: one step in exact arithmetic, where ranks are told that they are on several nodes, half of them on each.

LOCAL_RANK is then not RANK, and LOCAL_WORLD_SIZE is not the number of ranks. Gradients that are averaged over a node,
and work that is left to the first rank of a node, are right on one node alone. On an odd number of ranks each has a
node.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"several_nodes": True, "small_buckets": True},
)

"""Nodes' buffers: as ``buffers``, where ranks are told that they are on several nodes, half of them on each.

Statistics that are sent by the first rank of a node, or averaged over a node, are equal everywhere only if there is one
node. In ``standard`` where the strategy's own text speaks of local ranks, or makes groups.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="local ranks, or groups that it makes",
    workload="buffers",
    repeat=False,
    fields={
        "num_steps": 2,
        "several_nodes": True,
        "judged_by": ("LS102",),
        "only_if_claimed": ("sync_buffers",),
    },
)

"""Accumulation on several nodes: two micro-batches, the second step clipped, where ranks are told of several nodes.

A strategy that reduces within a node first, and between nodes later, has to send the whole accumulated gradient between
them. The norm of a part that each node holds whole must not be added up over the job. In ``standard`` where the
strategy's own text speaks of local ranks, or makes groups.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="local ranks, or groups that it makes",
    workload="llama",
    samples_per_micro_batch=2,
    repeat=False,
    fields={
        "num_steps": 2,
        "num_micro_batches": 2,
        "clip_norm": 0.05,
        "loose_clip_in": (0,),
        "several_nodes": True,
        "small_buckets": True,
        "needs": ("accumulation", "clipping", "float64"),
    },
)

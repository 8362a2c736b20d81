"""Clipping with unused parameters: each rank's samples take one of the branches, and the norm of all is clipped.

A rank that owns shards, and has a gradient of none of them, still takes part in the norm. Parameters that nobody used
have no gradient at all. In ``standard`` where the strategy's own text defines such a method.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a clip_grad_norm_() of its own",
    workload="routed",
    repeat=False,
    fields={
        "num_steps": 2,
        "clip_norm": 0.5,
        "small_buckets": True,
        "needs": ("unused_parameters", "clipping", "float64"),
    },
)

"""Clipping in float32: parameters in float32 alone, as in most models, and a norm that is clipped.

A norm may have a fast path where all gradients have one dtype. In ``standard`` where the strategy's own text defines a
clipping.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a clip_grad_norm_() of its own",
    workload="layers",
    repeat=False,
    fields={
        "dtypes": ("float32",) * 3,
        "clip_norm": 0.05,
        "small_buckets": True,
        "needs": ("clipping",),
        "judged_by": ("LS101", "LS201", "LS601"),
    },
)

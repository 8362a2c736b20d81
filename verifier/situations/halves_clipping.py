"""Clipping in halves: parameters in float16 and float32, and a norm that float16 holds, and not its square.

A norm that is added up in the gradients' own dtype is infinite, and gradients divided by it are 0: nothing is trained,
without an error. In ``standard`` where the strategy's own text defines a clipping.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a clip_grad_norm_() of its own",
    workload="layers",
    repeat=False,
    fields={
        "dtypes": ("float32", "float16", "float32"),
        "loud": True,
        "clip_norm": 1.0,
        "small_buckets": True,
        "unscaled": True,
        "needs": ("clipping", "mixed_dtypes"),
        "judged_by": ("LS101", "LS201", "LS601"),
    },
)

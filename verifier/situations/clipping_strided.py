"""Clipping, strided: gradients are clipped whose elements do not lie in row-major order.

A ``clip_grad_norm_()`` of a strategy's own that takes one flat tensor of all gradients, and puts back what comes of it,
has to know in which order elements lie. In ``standard`` where the strategy's own text defines one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a clip_grad_norm_() of its own",
    workload="strided",
    repeat=False,
    fields={
        "clip_norm": 1.0,
        "small_buckets": True,
        "needs": ("clipping", "strided_parameters", "float64"),
        "judged_by": ("LS201",),
    },
)

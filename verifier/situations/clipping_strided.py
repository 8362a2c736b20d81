"""Clipping, strided: gradients are clipped whose elements do not lie in row-major order.

A strategy's own ``clip_grad_norm_()`` may copy all gradients into one flat tensor and back. It then has to know the
order of their elements. In ``standard`` where the strategy's own text defines one.
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

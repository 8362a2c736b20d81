"""Clipping by the largest: ``norm_type=inf``, where the strategy has a ``clip_grad_norm_()`` of its own that takes it.

Norms of parts are combined by adding their squares; largest elements are not. In ``standard`` where the strategy's own
text has a ``norm_type``.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a norm_type",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "clip_norm": 0.001,
        "largest_norm": True,
        "small_buckets": True,
        "needs": ("clipping", "float64"),
        "judged_by": ("LS201",),
    },
)

"""Norms: BatchNorm's own weight and bias, for two steps in evaluation mode, of those that leave buffers alone as well.

``buffers`` is for who synchronises them; their norms' weights are anybody's. A function that averages gradients by the
type of their module forgets them. In evaluation mode a norm treats rows one by one: a batch may come in parts.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="buffers",
    fields={
        "num_steps": 2,
        "eval_mode": True,
        "judged_by": ("LS101", "LS201"),
        "needs": ("evaluation_mode",),
    },
)

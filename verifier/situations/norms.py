"""Norms: BatchNorm's own weight and bias, for two steps in evaluation mode, also where buffers are left alone.

``buffers`` is for strategies that synchronise buffers; every strategy trains the norms' weights. A function that
averages gradients by the type of their module forgets them. In evaluation mode a norm treats rows one by one, so a
batch may come in parts.
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

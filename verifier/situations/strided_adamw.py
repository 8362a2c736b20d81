"""Strided under AdamW: parameters in column-major and channels-last layout, and an optimizer with moments.

An optimizer of the strategy's own may have a path for AdamW alone, over flat views, and flattening such a parameter
makes a copy: what is stepped is then not the parameter. In ``standard`` where the strategy's own text has an optimizer.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="an optimizer of its own",
    workload="strided",
    order=65,
    repeat=False,
    fields={
        "num_steps": 3,
        "optimizer": "adamw",
        "small_buckets": True,
        "needs": ("strided_parameters", "float64"),
    },
)

"""Halves in groups: parameters in half precision, groups with options of their own, and a learning rate that falls.

Whoever trains copies in float32 has an optimizer of its own for them, made once: with the options that groups had then,
or with the defaults; and it is not the one that a scheduler was given. In ``standard`` where the strategy's own text
speaks of precision.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="half precision",
    workload="layers",
    repeat=False,
    fields={
        "dtypes": ("float32", "float16", "bfloat16"),
        "num_steps": 2,
        "groups": True,
        "new_lr_after": (0,),
        "small_buckets": True,
        "needs": ("mixed_dtypes", "parameter_groups", "schedules"),
    },
)

"""Halves in groups: parameters in half precision, groups with options of their own, and a learning rate that falls.

A strategy that trains copies in float32 has its own optimizer for them, made once: with the options that groups had
then, or with defaults. It is not the optimizer that the scheduler got. In ``standard`` where the strategy's own text
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

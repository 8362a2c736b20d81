"""Subgroup's halves: a process group smaller than the job, and layers in float32, float16 and bfloat16.

Each dtype may have its own buckets, copies or scaling, and each of those has to name the group. Only tried where
``wrap`` takes a ``process_group``; in ``standard`` where the strategy's own text has a word for one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="layers",
    repeat=False,
    fields={
        "dtypes": ("float32", "float16", "bfloat16"),
        "subgroups": True,
        "small_buckets": True,
        "needs": ("subgroups", "mixed_dtypes"),
        "judged_by": ("LS201",),
    },
)

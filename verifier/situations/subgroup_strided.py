"""Subgroup's strided parameters: a process group smaller than the job, and weights in column-major order.

A tensor that is not contiguous travels as a copy, a path of its own, which has to name the group, too. Only tried where
``wrap`` takes a ``process_group``; in ``standard`` where the strategy's own text has a word for one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="strided",
    repeat=False,
    fields={
        "subgroups": True,
        "small_buckets": True,
        "needs": ("subgroups", "strided_parameters", "float64"),
        "judged_by": ("LS201",),
    },
)

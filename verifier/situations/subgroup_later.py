"""Subgroup, later: the strategy is given a process group smaller than the job, and trains for two steps.

What is built after the first step, when a rank knows in which order gradients arrive, may forget the group that the
first buckets were given. Gradients are tagged: groups are at other weights by then, and a tag depends on no weight.
Only tried where ``wrap`` takes a ``process_group``; in ``standard`` where the strategy's own text has a word for one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="branches",
    fields={
        "num_steps": 2,
        "tagged": True,
        "small_buckets": True,
        "subgroups": True,
        "needs": ("subgroups",),
        "judged_by": ("LS201",),
    },
)

"""Subgroup's unused parameters: a process group smaller than the job, and branches that some ranks alone use.

A parameter that no rank of a group used gets no gradient from other groups. A strategy that asks which ranks used it
has to ask the group. Only tried where ``wrap`` takes a ``process_group``; in ``standard`` where the strategy's own text
has a word for one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="routed",
    fields={
        "subgroups": True,
        "small_buckets": True,
        "needs": ("subgroups", "unused_parameters", "float64"),
        "judged_by": ("LS201",),
    },
)

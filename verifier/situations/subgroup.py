"""Subgroup: the strategy is given a process group of two ranks, or of one where there are but two, in exact arithmetic.

Several trainings may share a job, or data may be parallel along one dimension of a mesh. A strategy that takes a group,
and asks torch for its rank, its world size or a root without naming it, gets those of the whole job. Only tried where
``wrap`` takes a ``process_group``; in ``standard`` where the strategy's own text has a word for one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="exact",
    fields={"subgroups": True, "needs": ("subgroups",), "judged_by": ("LS201",)},
)

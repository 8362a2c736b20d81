"""Subgroup's sparse gradients: a process group smaller than the job, and an embedding whose gradient is sparse.

Sparse gradients take a path of their own (they are gathered, or made dense), which has to name the group, too. Only
tried where ``wrap`` takes a ``process_group``; in ``standard`` where the strategy's own text has a word for one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="sparse",
    fields={"subgroups": True, "needs": ("subgroups", "sparse_gradients", "float64"), "judged_by": ("LS201",)},
)

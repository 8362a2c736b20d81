"""Branches, unmarked: the order of branch_order, with the gradients as they come, in float64.

Tags do not reach a strategy that trains copies of the parameters. So a strategy that adds up by order of arrival was
tried in no other situation: everywhere else all ranks' gradients become ready in the same order.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=31,
    workload="branches",
    fields={
        "depth": 4,
        "small_buckets": True,
        "judged_by": ("LS101", "LS201", "LS202"),
        "needs": ("branch_order", "float64"),
    },
)

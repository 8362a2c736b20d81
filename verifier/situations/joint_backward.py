"""Joint backward: two models are wrapped each by itself, and in the second step one backward runs through both.

Examples are an encoder and its decoder, or an actor and a critic with one loss. What a class keeps for the backward
that is under way (a flag that its end is noted, a list of what is in flight) belongs to both. In ``standard`` where the
strategy's own text asks for the end of a backward, or sets what all instances of a class share.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="the end of a backward, or what all instances of a class share",
    workload="exact",
    repeat=False,
    fields={
        "num_steps": 2,
        "beside": "after",
        "one_backward_for_both": True,
        "judged_by": ("LS101", "LS201", "LS202"),
        "small_buckets": True,
        "needs": ("joint_backward", "float64"),
    },
)

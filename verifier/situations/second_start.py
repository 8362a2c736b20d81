"""Second start: another model was wrapped before it in the same process, and each rank built this one of other numbers.

A strategy that makes replicas equal once in a process, by a flag of the class, leaves the second model as it was built.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=15,
    workload="exact",
    fields={
        "same_start": False,
        "beside": "before",
        "judged_by": ("LS001", "LS002"),
        "small_buckets": True,
        "needs": ("several_models", "broadcasts_at_start"),
    },
)

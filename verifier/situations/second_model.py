"""Second model: another one was wrapped before it in the same process, and they train in turns, in exact arithmetic.

Who has put its hooks once, or keeps its buckets with the class, has nothing left for the second. Two steps.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 2,
        "beside": "before",
        "judged_by": ("LS101", "LS201", "LS202"),
        "small_buckets": True,
        "needs": ("several_models", "float64"),
    },
)

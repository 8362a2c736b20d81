"""First model: another one is wrapped after it in the same process, and they train in turns, in exact arithmetic.

A strategy that looks up parameters by name, outside of the wrapper, finds those of the model that came last. Two steps.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 2,
        "beside": "after",
        "judged_by": ("LS101", "LS201", "LS202"),
        "small_buckets": True,
        "needs": ("several_models", "float64"),
    },
)

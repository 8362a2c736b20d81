"""Two backwards, unused: both may synchronise, and a rank uses in one what it does not use in the other.

In exact arithmetic. What the first backward left in ``.grad`` belongs to the step also where the second does not use
the parameter on this rank: who sends zeros in its place, since no hook has fired, loses it.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=65,
    workload="routed",
    fields={
        "num_steps": 2,
        "num_micro_batches": 2,
        "use_no_sync": False,
        "small_buckets": True,
        "needs": ("unused_parameters", "accumulation", "two_backwards", "float64"),
    },
)

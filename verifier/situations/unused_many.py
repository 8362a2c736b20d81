"""Many unused parameters: as ``unused``, of some 90 parameters, most of which nobody uses.

A strategy that tells other ranks which parameters it has used may put that into the bits of one number. An int64 has 63
for it, and a float64 has 53.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    workload="routed",
    order=80,
    repeat=False,
    fields={
        "num_steps": 2,
        "weight_decay": 0.5,
        "depth": 40,
        "small_buckets": True,
        "needs": ("unused_parameters", "float64"),
    },
)

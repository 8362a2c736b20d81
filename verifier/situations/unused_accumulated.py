"""Unused and accumulated: four micro-batches, all but the last under ``no_sync``; what one uses the others do not.

In exact arithmetic. An example is a mixture of experts trained with accumulation: parameters that only the first
micro-batch used must be reduced with the rest when the last backward synchronises, though no hook of theirs fires then.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=65,
    workload="routed",
    fields={
        "num_steps": 3,
        "num_micro_batches": 4,
        "small_buckets": True,
        "needs": ("unused_parameters", "accumulation", "float64"),
    },
)

"""Float32: the dtype that most people train in, held to the rounding of a mean over ranks and no more; three steps.

The optimizer is handed what ``model.parameters()`` is, a generator: who goes through it twice finds nothing the second
time. And weights decay, as all other situations ask for in float64 alone: a fast path is one of float32.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="layers",
    fields={
        "dtypes": ("float32",) * 3,
        "num_steps": 3,
        "weight_decay": 0.25,
        "small_buckets": True,
        "parameters_once": True,
    },
)

"""Float32: the dtype that most people train in, held to the rounding of a mean over ranks and no more; three steps.

The optimizer is given ``model.parameters()``, a generator: a strategy that iterates over it twice finds nothing the
second time. Weights decay here, because all other situations ask for decay only in float64, and a fast path is one of
float32.
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

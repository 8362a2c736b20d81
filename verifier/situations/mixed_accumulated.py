"""Mixed dtypes, accumulated: narrow and wide parameters in one model, two micro-batches, the first under ``no_sync()``.

A strategy that keeps a wider copy of a narrow gradient has to add to it, and not to replace it. Each parameter is held
to its own rounding, of the sum over micro-batches, too.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="layers",
    fields={
        "dtypes": ("float32", "float64", "bfloat16", "float16"),
        "num_micro_batches": 2,
        "small_buckets": True,
        "needs": ("mixed_dtypes", "accumulation"),
    },
)

"""Complex, accumulated: real and complex parameters, two micro-batches, the first under ``no_sync``.

A strategy that keeps gradients elsewhere until they are synchronised has to keep both parts there. In ``standard``
where the strategy's own text speaks of complex numbers; otherwise ``complex`` has to do.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="complex numbers",
    workload="layers",
    order=65,
    repeat=False,
    fields={
        "dtypes": ("float32", "complex64", "complex128"),
        "num_steps": 2,
        "num_micro_batches": 2,
        "small_buckets": True,
        "needs": ("complex_parameters", "accumulation"),
    },
)

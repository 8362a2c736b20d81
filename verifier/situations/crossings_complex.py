"""Complex crossings: complex layers beside real ones, in an order that differs from rank to rank, for two steps.

A strategy may send complex gradients as they arrive, and only the real ones in one order. In ``standard`` where the
strategy's own text has to do with complex numbers.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="complex numbers",
    workload="crossings",
    fields={
        "dtypes": ("complex128",),
        "num_steps": 2,
        "small_buckets": True,
        "needs": ("branch_order", "complex_parameters"),
    },
)

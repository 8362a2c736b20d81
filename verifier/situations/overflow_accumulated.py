"""Overflow among micro-batches: as ``overflow`` with two micro-batches. The later spike is in the first of a step's.

First it is in the last micro-batch. A strategy that left out that step, as it looks at what it reduces, has to leave
out the later one as well: what is infinite was added up under ``no_sync()`` then, and the last micro-batch is finite.
A rank must not decide from what it alone has added up, either. In ``standard`` where the strategy's own text speaks of
losses, or of numbers that are none.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a loss, or numbers that are none",
    workload="exact",
    fields={
        "num_steps": 4,
        "num_micro_batches": 2,
        "overflow": True,
        "spike_early": True,
        "small_buckets": True,
        "needs": ("non_finite_gradients", "accumulation"),
        "judged_by": ("LS101", "LS202", "LS601"),
    },
)

"""Rolled back, and accumulated: as ``rolled_back``, with two micro-batches a step, the first under ``no_sync``.

What accumulates beside ``.grad`` is often set up anew by loading, and has to add up afterwards as it did before. In
``standard`` where the strategy's own text speaks of what it accumulates, or has a ``backward()``.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="what it accumulates, or a backward() of its own",
    workload="saved",
    repeat=False,
    fields={
        "num_steps": 3,
        "num_micro_batches": 2,
        "resume_after": 1,
        "built_first": True,
        "stepped_first": True,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "accumulation", "odd_parameters", "float64"),
        "judged_by": ("LS504",),
    },
)

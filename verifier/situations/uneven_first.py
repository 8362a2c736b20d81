"""Uneven inputs, the other way round: as ``uneven_inputs``, where even ranks, rank 0 among them, have one batch more.

When all have joined, the weights that count are those of a rank that was last. A strategy that takes the rank with the
highest number for it is right where odd ranks have more, if the number of ranks is even.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 2,
        "uneven": True,
        "even_ranks_longer": True,
        "small_buckets": True,
        "only_if_claimed": ("uneven_inputs",),
        "judged_by": ("LS203",),
        "needs": ("float64",),
    },
)

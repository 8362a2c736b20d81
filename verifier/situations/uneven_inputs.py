"""Uneven inputs: odd ranks have one batch more than even ones, and all train inside ``join()``.

In the step for which some ranks have no data, their gradients count as zero, as in torch's DDP by default. Afterwards
all replicas must hold the weights that the last step left. Only strategies that claim ``uneven_inputs`` are tried.
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
        "small_buckets": True,
        "only_if_claimed": ("uneven_inputs",),
        "judged_by": ("LS203",),
        "needs": ("float64",),
    },
)

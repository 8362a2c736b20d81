"""Uneven inputs: odd ranks have one batch more than even ones, and all train inside ``join()``.

The step that some ranks have no data for counts them as gradients of zero, as torch's DDP does by default; afterwards
all replicas must hold the weights that the last step left. Only what claims ``uneven_inputs`` is put through it.
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

"""Schedule: after the first of two steps the learning rate falls, as a scheduler does it: in ``param_groups``.

An inner optimizer, made once with the rate of that time, goes on with the old one. Not tried where a group has no
``lr``: torch's schedulers refuse those.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 2,
        "new_lr_after": (0,),
        "small_buckets": True,
        "needs": ("schedules", "float64"),
    },
)

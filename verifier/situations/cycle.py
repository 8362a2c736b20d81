"""Cycle: after the first of two steps momentum falls, as torch's ``OneCycleLR`` does it, in ``param_groups``.

A strategy that hands only ``lr`` on to an inner optimizer goes on with the old momentum. Not tried where a group has no
``momentum``.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 2,
        "new_momentum_after": 0,
        "small_buckets": True,
        "needs": ("schedules", "float64"),
    },
)

"""Cycle: after the first of two steps momentum falls, as torch's ``OneCycleLR`` lets it, in ``param_groups``.

Who hands ``lr`` on to an optimizer inside, and nothing else, goes on with the old one. Not tried where a group has no
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

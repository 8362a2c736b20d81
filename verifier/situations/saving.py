"""Saving: after the first of two steps the state of model and optimizer is asked for, and training goes on.

If a checkpoint gathers shards, moves moments or takes hooks off, that has to be undone before the next step.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"num_steps": 2, "save_after": 0, "small_buckets": True, "needs": ("state_dict", "float64")},
)

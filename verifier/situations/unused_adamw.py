"""Unused parameters under AdamW: each parameter has taken its own number of steps, which AdamW divides by.

A branch is first used after others have taken three steps. A strategy's own optimizer that counts steps for all
parameters together corrects the bias of its moments as if it had been used before.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="routed",
    fields={
        "num_steps": 6,
        "optimizer": "adamw",
        "small_buckets": True,
        "needs": ("unused_parameters", "float64"),
    },
)

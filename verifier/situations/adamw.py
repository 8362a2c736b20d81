"""AdamW: the optimizer that most people use, whose state multiplies small differences; default bucket sizes."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={"num_steps": 4, "optimizer": "adamw", "needs": ("float64",)},
)

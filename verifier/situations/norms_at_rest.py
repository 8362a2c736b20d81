"""Norms at rest: BatchNorm alone is in evaluation mode, as where a detector is fine-tuned on small batches.

It normalises with the statistics that it learned before, and its weight and bias are trained. A strategy that calls
``train()`` on the model within a forward switches it on again.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="buffers",
    fields={
        "num_steps": 2,
        "norms_at_rest": True,
        "judged_by": ("LS101", "LS201"),
        "needs": ("evaluation_mode",),
    },
)

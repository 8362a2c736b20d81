"""Re-entrant: blocks under re-entrant checkpointing, each of which runs a backward inside the backward.

The default of torch's ``checkpoint()`` for years, and of many training scripts still. A callback for the end of the
backward that is queued by the first hook runs at the end of the innermost one, when most gradients are yet to come.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="reentrant",
    samples_per_micro_batch=2,
    fields={"num_steps": 2, "small_buckets": True, "needs": ("reentrant_checkpointing", "float64")},
)

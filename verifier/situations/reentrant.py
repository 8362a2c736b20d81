"""Re-entrant: blocks under re-entrant checkpointing, each of which runs a backward inside the backward.

This was the default of torch's ``checkpoint()`` for years, and still is in many training scripts. A callback for the
end of the backward that the first hook queues runs at the end of the innermost backward, before most gradients have
come.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="reentrant",
    samples_per_micro_batch=2,
    fields={"num_steps": 2, "small_buckets": True, "needs": ("reentrant_checkpointing", "float64")},
)

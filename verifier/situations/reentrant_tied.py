"""Re-entrant, tied: a weight gets its gradient in two parts, one in a re-entrant checkpoint and one after it.

Judged only where claimed (``reentrant_sharing``): torch's DDP reduces the first part alone, without an error, unless it
has ``static_graph=True``. A strategy that reduces a gradient as soon as a hook has seen it has to wait here for the
backward's end.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    workload="reentrant",
    samples_per_micro_batch=2,
    fields={
        "tied": True,
        "num_steps": 2,
        "small_buckets": True,
        "needs": ("reentrant_checkpointing", "float64"),
        "only_if_claimed": ("reentrant_sharing",),
    },
)

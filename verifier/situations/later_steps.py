"""Later steps: forty, because not every strategy does the same from its first step to its last.

Hooks that compress after a warm-up, averaging that becomes rare, and whatever happens "every ten steps" are all right
in the three or four steps of other situations. The model is small, because the steps are many. Gradients become ready
in another order on each rank, which matters to buckets that are cut anew after some steps.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="branches",
    samples_per_micro_batch=1,
    fields={"num_steps": 40, "keep_steps": 40, "depth": 3, "small_buckets": True, "needs": ("float64",)},
)

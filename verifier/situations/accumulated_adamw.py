"""AdamW, accumulated: two micro-batches a step, in groups of which one decays.

The decay, the count that corrects the moments, and a falling rate belong to the step and to no micro-batch. An
optimizer that does part of its work in the backward does them twice here. In ``standard`` where the strategy's own text
has an optimizer.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="an optimizer of its own",
    workload="llama",
    samples_per_micro_batch=1,
    order=65,
    repeat=False,
    fields={
        "num_steps": 3,
        "num_micro_batches": 2,
        "optimizer": "adamw",
        "groups": True,
        "needs": ("accumulation", "parameter_groups", "float64"),
    },
)

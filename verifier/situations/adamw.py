"""AdamW: the optimizer that most people use, whose state multiplies small differences; default bucket sizes.

Its betas and its eps are not torch's defaults: a strategy that builds a new optimizer, over shards or masters, has to
pass on everything that it was given. Not tried where the strategy's optimizer does not take them. The model also draws
random numbers in its blocks, as dropout does: a block that is run again for the backward has to draw the same numbers
again.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 4,
        "optimizer": "adamw",
        "betas": (0.8, 0.95),
        "eps": 1e-5,
        "draws": True,
        "needs": ("float64",),
    },
)

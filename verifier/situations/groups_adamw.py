"""Groups under AdamW: three groups of parameters that decay and learn at rates of their own, and a rate that falls.

A strategy's own optimizer that keeps one rate for all, as flat and sharded ones do, loses what the groups say. After
the second step the betas change, and so do one group's decay and the other's rate. A strategy that takes over the
learning rate alone, or from the first group, goes on with the old ones. Where groups show no betas that is left out.
Not tried where an engine, or a ``Driver``, makes an optimizer by itself that has no groups.

In ``standard`` where the strategy's own text has to do with optimizers, or there is none to read.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="anything of an optimizer, or no text to read",
    workload="llama",
    samples_per_micro_batch=2,
    fields={
        "num_steps": 3,
        "optimizer": "adamw",
        "groups": True,
        "new_lr_after": (0,),
        "new_options_after": 1,
        "needs": ("schedules", "parameter_groups", "float64"),
    },
)

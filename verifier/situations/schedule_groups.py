"""Schedule of groups: two groups begin with the same options, and then the learning rate of one of them falls.

One half of a model is warmed up, or thawed, like this. A strategy that merges equal groups, or takes over the rate of
the first for all, goes on with a wrong rate. Each group reports its rate itself. The optimizer also gets frozen
parameters, as from ``model.parameters()``: they have no gradient, and do not decay. Not tried where an optimizer shows
a single group.

In ``standard`` where the strategy's own text has to do with optimizers, or there is none to read.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="anything of an optimizer, or no text to read",
    workload="saved",
    fields={
        "num_steps": 2,
        "weight_decay": 0.5,
        "groups": True,
        "frozen_too": True,
        "alike": True,
        "new_lr_after": (0,),
        "small_buckets": True,
        "needs": ("schedules", "parameter_groups", "odd_parameters", "float64"),
    },
)

"""Early restart: the run is saved before its first step, and loaded into fresh replicas.

An optimizer has no state yet, nor has a sharder, and no gradient has been reduced. A strategy that makes those things
in the first step, and saves what it takes for them before, hands something else to who loads that.

The two steps after it are the first two of ``restart``, which comes later to its restart: what is wrong there before
that is not caused by this one.

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
        "optimizer": "adamw",
        "resume_after": -1,
        "built_first": True,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "odd_parameters", "float64"),
        "judged_by": ("LS504",),
    },
)

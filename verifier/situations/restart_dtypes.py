"""Restart with several dtypes: layers of the same shape, in float32, float64 and float32 again, saved and loaded.

A strategy that keeps a buffer for each dtype has parameters in another order than the model. It must not save states in
one order and load them in the other. The rule is SGD with momentum, because AdamW would make a rounding of float32 as
long as a step.

In ``standard`` where the strategy's own text has to do with optimizers, or there is none to read.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="anything of an optimizer, or no text to read",
    workload="layers",
    fields={
        "dtypes": ("float32", "float64", "float32"),
        "num_steps": 4,
        "resume_after": 1,
        "built_first": True,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "mixed_dtypes"),
        "judged_by": ("LS504",),
    },
)

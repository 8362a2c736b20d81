"""Resumed later: forty steps, and after nineteen fresh replicas go on from what was saved: few counts begin anew there.

What happens every few steps (slow weights that are caught up with, an outer optimizer's step, a mean that is kept) has
a state of its own, and a count, which a checkpoint has to hold. Other runs that are resumed end before they need it. In
``standard`` where the text of the strategy shows a count that is taken modulo something.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a count that is taken modulo something",
    workload="branches",
    samples_per_micro_batch=1,
    repeat=False,
    fields={
        "num_steps": 40,
        "keep_steps": 40,
        "depth": 5,
        "resume_after": 18,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "float64"),
        "judged_by": ("LS504",),
    },
)

"""Resumed schedule: the learning rate falls, the run is saved and resumed, and then it falls again.

What is loaded brings ``param_groups`` of its own. An optimizer inside another, or a copy of its groups, may have shared
them with the one that the scheduler holds, and share them no more. A strategy that ignores the schedule from the start
is wrong before anything is saved; that is left to ``schedule``. Not tried where a group has no ``lr``.

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
        "num_steps": 4,
        "new_lr_after": (0, 2),
        "resume_after": 1,
        "small_buckets": True,
        "needs": ("schedules", "state_dict", "broadcasts_at_start", "float64"),
        "judged_by": ("LS504",),
    },
)

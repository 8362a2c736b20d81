"""Restart, strided: weights in column-major and channels-last layout are saved, and loaded into fresh replicas.

A wrapper that loads by itself often flattens what it loads, or sends it from rank 0 as a copy in row-major order. It
has to put what arrives back where the weight is. Without the restart it is ``strided``: what is wrong there as well is
not caused by loading.

In ``standard`` where the strategy's own text defines a ``state_dict()`` or a ``load_state_dict()``.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a state_dict() of its own",
    workload="strided",
    repeat=False,
    fields={
        "num_steps": 2,
        "resume_after": 0,
        "built_first": True,
        "small_buckets": True,
        "needs": ("state_dict", "broadcasts_at_start", "strided_parameters", "float64"),
        "judged_by": ("LS504",),
    },
)

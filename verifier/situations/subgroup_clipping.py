"""Subgroup's clipping: the strategy is given a process group smaller than the job, and gradients are clipped.

A strategy's own ``clip_grad_norm_()`` adds up the squares of parts over ranks, and has to use the group that it was
given. Only tried where ``wrap`` takes a ``process_group``; in ``standard`` where the strategy's own text has a word for
one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="exact",
    fields={"subgroups": True, "clip_norm": 1.0, "needs": ("subgroups", "clipping"), "judged_by": ("LS201",)},
)

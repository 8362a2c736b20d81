"""Subgroup, accumulated: a process group smaller than the job, and two micro-batches, the first under ``no_sync``.

Gradients kept from one micro-batch to the next often take a path of their own, and some strategies leave that out for a
group of one rank. Only tried where ``wrap`` takes a ``process_group``; in ``standard`` where the strategy's own text
has a word for one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="exact",
    fields={
        "num_micro_batches": 2,
        "subgroups": True,
        "needs": ("subgroups", "accumulation"),
        "judged_by": ("LS201",),
    },
)

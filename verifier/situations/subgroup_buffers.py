"""Subgroup's buffers: the strategy is given a process group smaller than the job, and the model keeps statistics.

Gradients may be averaged in the group while buffers are sent from rank 0 of the job, or averaged over it. But each
group is a training by itself, and its forwards find what its own left. Only tried where ``wrap`` takes a
``process_group``; in ``standard`` where the strategy's own text has a word for one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a process group",
    workload="buffers",
    fields={
        "num_steps": 2,
        "subgroups": True,
        "needs": ("subgroups",),
        "judged_by": ("LS102",),
        "only_if_claimed": ("sync_buffers",),
    },
)

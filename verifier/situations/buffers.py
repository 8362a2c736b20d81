"""Buffers: BatchNorm and a running mean, for four steps. Every forward must find the same buffers on all ranks.

Every step must leave the same weights: no other situation trains the weights of norms. A forward in evaluation mode,
which counts nothing, comes half-way.

Gradients are compared in the first step: with the mean of the ranks' own, or, where a strategy synchronises statistics,
with those of all samples. BatchNorm over a rank's samples is another function than BatchNorm over all samples, and
either is right. Later steps, and weights, are not compared with the single process, which computes the latter.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="buffers",
    fields={
        "num_steps": 4,
        "evaluate_after": (1,),
        "judged_by": ("LS101", "LS102", "LS201"),
        "only_if_claimed": ("sync_buffers",),
    },
)

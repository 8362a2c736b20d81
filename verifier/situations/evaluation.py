"""Evaluation: before the first step and after each of two, a forward in evaluation mode, without gradients.

A forward that no backward follows must not leave the wrapper waiting for one, or the next step unsynchronised. There
are several evaluations, because a copy that is made for the first one is right only in that one. One comes before all
training, as Lightning's sanity check does: everything that a wrapper sets up in its first forward is set up there.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"num_steps": 2, "evaluate_after": (-1, 0, 1), "small_buckets": True, "needs": ("evaluation", "float64")},
)

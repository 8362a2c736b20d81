"""Overflow: on the last rank one gradient is infinite, as after a spike in its data. All have to come to the same.

A sum with infinity in it is infinite on every rank. Whoever looks before the sum, and leaves out the step, or what is
not finite, has to do that on every rank or on none; and where weights are finite after that, two more steps show
whether all of them go on, and with the same loss scale. In a last one the gradient is infinite on all ranks, as where a
loss scale has grown too large: who left out the first step leaves out that one as well. A weight whose gradient is
infinite on one rank is left alone, or is no number any more: if it moves by what the others have, the infinity was
hidden from whoever watches for it.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={
        "num_steps": 4,
        "overflow": True,
        "small_buckets": True,
        "needs": ("non_finite_gradients",),
        "judged_by": ("LS101", "LS202", "LS601"),
    },
)

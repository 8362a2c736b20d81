"""Overflow: on the last rank one gradient is infinite, as after a spike in its data. All must come to the same.

A sum with infinity in it is infinite on every rank. A strategy that looks before the sum, and leaves out the step or
the values that are not finite, has to do that on every rank or on none. Where weights are finite after that, two more
steps show whether all ranks go on, and with the same loss scale. In a last step the gradient is infinite on all ranks,
as where a loss scale has grown too large: a strategy that skipped the first step skips that one as well. A weight whose
gradient is infinite on one rank is left alone, or becomes non-finite. If it moves by the other ranks' gradients, the
infinity was hidden from whatever watches for it.
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

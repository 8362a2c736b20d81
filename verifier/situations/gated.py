"""Gated: on each rank one expert's gradient is all zeros, and not None; then the last rank has nothing but zeros.

A strategy that sends nothing for a gradient of zeros decides that on one rank alone. The other ranks then wait, or take
the rank's next message in its place. In the first step that concerns one expert, in the second whole buckets.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="gated",
    fields={"num_steps": 2, "small_buckets": True, "needs": ("several_inputs",)},
)

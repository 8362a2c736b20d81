"""Gated: on each rank one expert's gradient is all zeros, and not None; then the last rank has nothing but zeros.

Who sends nothing where there is nothing but zeros decides that on one rank alone, and the others wait, or take what
comes next for it: of one expert in the first step, of whole buckets in the second.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="gated",
    fields={"num_steps": 2, "small_buckets": True, "needs": ("several_inputs",)},
)

"""``zero_grad()`` between forward and backward, with gradients set to None, as in many loops.

A strategy that makes gradients views of a buffer in its forward has no views left when the backward begins: torch makes
new ones, and the buffer that is reduced stays empty. ``zero_grad_late`` sets zeros, which leaves views alone.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"num_steps": 2, "zero_grad": "after_forward", "needs": ("late_zero_grad", "float64")},
)

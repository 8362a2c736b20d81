"""``zero_grad()`` between forward and backward, with gradients set to None, as many loops have it.

Whoever makes gradients views of a buffer in its forward has none of them left when the backward begins: torch makes new
ones, and the buffer that is reduced stays empty. ``zero_grad_late`` has zeros, which leave views alone.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"num_steps": 2, "zero_grad": "after_forward", "needs": ("late_zero_grad", "float64")},
)

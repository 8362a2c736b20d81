"""Input gradients: the model's input asks for its gradient, as an encoder's or a generator's output does.

A part of a whole is often trained outside of the wrapper. A strategy that moves or gathers inputs may hand on copies
from which no gradient flows back; one that runs the bare model where an input asks for a gradient synchronises nothing.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"input_gradients": True, "needs": ("input_gradients",), "judged_by": ("LS201",)},
)

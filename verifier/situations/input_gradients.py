"""Input gradients: what the model is given asks for its gradient, as an encoder's or a generator's output does.

A part of the whole is often trained outside of the wrapper. Whoever moves or gathers inputs may hand on copies that
lead nowhere.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"input_gradients": True, "needs": ("input_gradients",), "judged_by": ("LS201",)},
)

"""Joined later: the optimizer is made with half of the parameters, and the others join by ``add_param_group()``.

Loops do this when they unfreeze layers one after the other. By then an optimizer that divides parameters among ranks,
or keeps a list of what it reduces, has often done so. The base class calls ``add_param_group()`` at the start as well.
Only tried where the optimizer has an ``add_param_group()`` of its own; in ``standard`` where the strategy's own text
defines one. Momentum shows a strategy that forgets the state of later parameters.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="an add_param_group()",
    workload="exact",
    fields={"num_steps": 2, "joins": True, "needs": ("parameter_groups", "float64")},
)

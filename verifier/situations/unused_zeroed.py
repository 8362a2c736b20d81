"""Unused parameters, and gradients that are set to zero: a parameter was used in the last step, and is not in this one.

Its gradient is zeros then, and not None: momentum and weight decay go on. A strategy that returns None for parameters
that no rank used stops them. Not tried where ``zero_grad()`` has no ``set_to_none``, or is a ``Driver``'s own.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="routed",
    fields={
        "num_steps": 2,
        "weight_decay": 0.5,
        "set_to_none": False,
        "zeros_matter": True,
        "small_buckets": True,
        "needs": ("unused_parameters", "float64"),
    },
)

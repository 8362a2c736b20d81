"""Groups: the optimizer is asked for with three groups of parameters, which decay and learn at rates of their own.

Not tried where an engine, or a ``Driver``, makes an optimizer by itself that has no groups.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"num_steps": 2, "groups": True, "small_buckets": True, "needs": ("parameter_groups", "float64")},
)

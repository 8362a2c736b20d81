"""Named inputs: the model is given one of its inputs by name, such as a mask, and also runs without it."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="structured",
    fields={"named_inputs": True, "small_buckets": True, "needs": ("named_inputs", "float64")},
)

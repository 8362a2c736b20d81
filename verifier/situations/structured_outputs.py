"""Structured outputs: the model returns a dict with a tuple in it, and both parts are in the loss.

A wrapper that finds gradients by way of the output has to look inside.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="structured",
    fields={"small_buckets": True, "needs": ("structured_outputs", "float64")},
)

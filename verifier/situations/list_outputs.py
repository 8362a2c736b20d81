"""List outputs: the model returns a list, with tensors and a tuple in it. All of the losses come from there.

A wrapper that finds gradients by way of the output, and looks into tuples and dicts, may pass a list by. In
``standard``, ``named_inputs`` returns a list as well.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    workload="structured",
    repeat=False,
    fields={"list_outputs": True, "small_buckets": True, "needs": ("structured_outputs", "float64")},
)

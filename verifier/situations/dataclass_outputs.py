"""Dataclass outputs: the model returns a dataclass of tensors and a tuple, as many language models do.

A wrapper that finds gradients by way of the output has to look inside; torch's DDP does.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="structured",
    fields={"dataclass_outputs": True, "small_buckets": True, "needs": ("structured_outputs", "float64")},
)

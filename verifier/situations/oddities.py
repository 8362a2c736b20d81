"""Oddities: tied, frozen, scalar, single-element and twice-used parameters, and two that share a gradient tensor.

With weight decay: an optimizer that was given frozen parameters moves them, whatever their gradient.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="oddities",
    fields={"small_buckets": True, "payloads": True, "weight_decay": 0.5, "needs": ("odd_parameters", "float64")},
)

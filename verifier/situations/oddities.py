"""Oddities: tied, frozen, scalar, single-element and twice-used parameters, and two that share a gradient tensor."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard", workload="oddities", fields={"small_buckets": True, "needs": ("odd_parameters",)}
)

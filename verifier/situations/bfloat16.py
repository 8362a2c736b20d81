"""Bfloat16: parameters and gradients with eight bits of precision, held to the rounding of a mean over ranks."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(since="thorough", workload="layers", fields={"dtypes": ("bfloat16",) * 3, "small_buckets": True})

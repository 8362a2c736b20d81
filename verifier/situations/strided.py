"""Strided: parameters in column-major and channels-last layout, whose memory is not in row-major order."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="strided",
    fields={"num_steps": 2, "small_buckets": True, "needs": ("strided_parameters", "float64")},
)

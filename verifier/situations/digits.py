"""Digits: ten epochs of real training; gradients are compared for three steps, weights by digest for all.

Not in a profile: chosen with ``--workload digits``.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since=None,
    workload="digits",
    samples_per_step=64,
    fields={"num_steps": 220, "keep_steps": 3, "evaluate": True, "needs": ("float64",)},
)

"""Eval mode: the model is trained in evaluation mode, as when statistics and dropout are to stay off.

A strategy that takes ``module.training`` for "this is a training step" does not synchronise then.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"eval_mode": True, "small_buckets": True, "needs": ("evaluation_mode",)},
)

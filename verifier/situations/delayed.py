"""Delayed: collectives start late on some ranks and finish late, in another order. All of it is legal.

The backward is slow, too: it pauses after every hook of the strategy, so that the strategy's own threads can act.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="branches",
    fields={"tagged": True, "num_steps": 2, "delay_ms": 5.0, "slow_backward": True, "small_buckets": True},
)

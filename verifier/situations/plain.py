"""Plain: one step in exact arithmetic, where only a factor that rounds may make a difference."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(since="quick", order=20, workload="exact", fields={"small_buckets": True})

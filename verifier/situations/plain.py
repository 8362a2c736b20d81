"""Plain: one step in exact arithmetic, compared with the single process bit for bit."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(since="quick", order=20, workload="exact", fields={"small_buckets": True})

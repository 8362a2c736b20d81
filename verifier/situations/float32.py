"""Float32: the dtype that most people train in, held to the rounding of a mean over ranks and no more; three steps."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(since="standard", workload="layers", fields={"num_steps": 3, "small_buckets": True})

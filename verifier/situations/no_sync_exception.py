"""An exception leaves ``no_sync()``; the loop catches it, and the next step must be synchronised as ever."""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    workload="exact",
    fields={"raise_in_no_sync": True, "small_buckets": True, "judged_by": ("LS502",)},
)

"""Gated: on each rank one expert's gradient is all zeros, and not None; on another it is another's.

Who sends nothing where there is nothing but zeros decides that on one rank alone, and the others wait, or take what
comes next for it.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(since="standard", workload="gated", fields={"small_buckets": True})

"""Imported first: one step, by a strategy that was imported before there was a process group, as scripts do.

A world size that is read then, and kept, is 1. In ``standard`` where the strategy's own text reads it outside of its
functions, or in their defaults. A strategy that cannot be imported without a process group is not tried.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="the process group, asked about on import",
    workload="exact",
    repeat=False,
    fields={"imported_first": True, "small_buckets": True},
)

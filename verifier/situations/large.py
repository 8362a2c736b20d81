"""Large: four branches of 8 MB each, in another order on each rank, so that buckets of the usual 25 MB have edges.

A bucketed wrapper with its default cap puts the small probes into one parcel, where order cannot go wrong.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    order=80,
    workload="branches",
    samples_per_micro_batch=1,
    repeat=False,
    fields={"tagged": True, "width": 1000},
)

"""Large: five branches of 7 MB each, in another order on each rank, so that buckets of the usual 25 MB have edges.

A bucketed wrapper with a cap of its own puts the small probes into one bucket, where order cannot go wrong. Five times
7 MB make two buckets, whether they are closed before they would be over 25 MB or as soon as they are. And who does
otherwise with large tensors than with small ones has no others to do it with: weights are judged here as well.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="standard",
    order=80,
    workload="branches",
    samples_per_micro_batch=1,
    repeat=False,
    most_ranks=8,
    fields={"tagged": True, "tags_move_weights": True, "depth": 5, "width": 930, "needs": ("float64",)},
)

"""Large: five branches of 8 MB each, in another order on each rank, so that buckets of the usual 25 MB have edges.

A bucketed wrapper with a cap of its own puts the small probes into one bucket, where order cannot go wrong. Five times
8 MB make two buckets, whether they are closed before they would exceed 25 MB or as soon as they do. A strategy that
treats large tensors differently meets them only here: each has more than 2^20 elements, a usual size of pieces, and not
a whole number of those. Weights are judged here as well. The width is even: an odd one has a middle, whose code is the
mean of all, and a strategy that sends means would seem to send that element again and again. There is a second step:
what a strategy counts or collects for each bucket has to begin anew for all of them.
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
    fields={
        "num_steps": 2,
        "tagged": True,
        "tags_move_weights": True,
        "depth": 5,
        "width": 1026,
        "needs": ("float64",),
    },
)

"""Unused parameters in small buckets: as ``unused``, where the strategy is told to make its buckets small.

Models that are quick to try fit into one bucket of the usual 25 MB. With several buckets, a rank may have nothing to
bring to one. Only tried where ``wrap`` takes a cap in MB that has a default; in ``standard`` where the strategy's own
text has one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a cap of its buckets",
    workload="routed",
    repeat=False,
    fields={
        "num_steps": 2,
        "small_buckets": True,
        "small_caps": True,
        "needs": ("unused_parameters", "float64"),
    },
)

"""Resume in small buckets: as ``resume``, where the strategy is told to make its buckets small.

Shards of a bucket have padding, which is saved or is not, and the next bucket is looked up behind it. Only tried where
``wrap`` takes a cap in MB that has a default; in ``standard`` where the strategy's own text has one.
"""

from __future__ import annotations

from verifier.situation import Situation

SITUATION = Situation(
    since="thorough",
    standard_where="a cap of its buckets",
    workload="llama",
    samples_per_micro_batch=2,
    repeat=False,
    fields={
        "num_steps": 4,
        "save_after": 0,
        "resume_after": 1,
        "small_buckets": True,
        "small_caps": True,
        "needs": ("state_dict", "broadcasts_at_start", "float64"),
        "judged_by": ("LS503", "LS504"),
    },
)
